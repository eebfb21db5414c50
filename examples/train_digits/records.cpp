// SPDX-License-Identifier: BSL-1.0
#include "records.hpp"

#include "settings.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>

namespace digits {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

epoch_record merged(std::span<const epoch_part> parts) {
  double samples = 0, steps = 0, loss = 0, seconds = 0, bytes = 0, calls = 0, accuracy = 0;
  for (const auto& part : parts) {
    samples += static_cast<double>(part.samples);
    steps += static_cast<double>(part.steps);
    loss += part.loss_sum;
    seconds = std::max(seconds, part.seconds);
    bytes += static_cast<double>(part.bytes);
    calls += static_cast<double>(part.calls);
    accuracy += ratio(static_cast<double>(part.correct), static_cast<double>(part.tested));
  }
  return {.epoch = parts.front().epoch + 1,
          .loss = ratio(loss, steps),
          .accuracy = accuracy / static_cast<double>(parts.size()),
          .samples_per_second = ratio(samples, seconds),
          .bytes_per_step = ratio(bytes, steps),
          .calls_per_step = ratio(calls, steps)};
}

std::string in_folder(const std::filesystem::path& folder) { return "'" + folder.string() + "'"; }

}  // namespace

std::string summary(const epoch_record& record, int epochs) {
  std::array<char, 200> text{};
  const bool kilo = record.bytes_per_step >= 1000;
  std::snprintf(
      text.data(), text.size(),
      "epoch %d/%d: loss %.4f, test accuracy %.3f, %.0f samples/s, %.*f %s and %.1f calls "
      "per step",
      record.epoch, epochs, record.loss, record.accuracy, record.samples_per_second, kilo ? 1 : 0,
      kilo ? record.bytes_per_step / 1000 : record.bytes_per_step, kilo ? "kB" : "bytes",
      record.calls_per_step);
  return text.data();
}

std::optional<epoch_record> history::add(const epoch_part& part) {
  if (part.trainer < 0 || part.trainer >= trainers_)
    throw std::invalid_argument("there is no trainer " + std::to_string(part.trainer));
  auto& parts = open_[part.epoch];
  const auto same = [&](const epoch_part& other) { return other.trainer == part.trainer; };
  if (closed_.contains(part.epoch) || std::ranges::any_of(parts, same))
    throw std::invalid_argument("trainer " + std::to_string(part.trainer) + " has ended epoch " +
                                std::to_string(part.epoch) + " before");
  parts.push_back(part);
  if (static_cast<int>(parts.size()) < trainers_) return std::nullopt;
  records_.push_back(merged(parts));
  closed_.insert(part.epoch);
  open_.erase(part.epoch);
  return records_.back();
}

void history::restore(std::vector<epoch_record> records) {
  for (const epoch_record& r : records) closed_.insert(r.epoch - 1);
  records_ = std::move(records);
}

nlohmann::json to_json(const history& run, const settings& how, double seconds) {
  auto epochs = nlohmann::json::array();
  for (const auto& record : run.records())
    epochs.push_back({{"epoch", record.epoch},
                      {"loss", record.loss},
                      {"accuracy", record.accuracy},
                      {"samples_per_second", record.samples_per_second},
                      {"bytes_per_step", record.bytes_per_step},
                      {"calls_per_step", record.calls_per_step}});
  return {{"test_accuracy", run.test_accuracy()},
          {"seconds", seconds},
          {"settings",
           {{"trainers", how.trainers},
            {"epochs", how.epochs},
            {"batch", how.batch},
            {"learning_rate", how.learning_rate},
            {"seed", how.seed},
            {"data", how.data},
            {"local", how.local}}},
          {"epochs", std::move(epochs)}};
}

void prepare_folder(const std::filesystem::path& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem)
    throw output_error("cannot create the folder " + in_folder(folder) + ": " + problem.message());
  if (!std::filesystem::is_directory(folder, problem))
    throw output_error(in_folder(folder) + " is not a folder");
  const auto file = folder / "train.json.part";
  if (!std::ofstream(file))
    throw output_error("cannot write into the folder " + in_folder(folder) + ": " +
                       std::generic_category().message(errno));
  std::filesystem::remove(file, problem);
}

void write_json(const std::filesystem::path& folder, const nlohmann::json& what) {
  const auto part = folder / "train.json.part";
  std::ofstream out(part, std::ios::trunc);
  out << what.dump(2) << '\n';
  out.close();
  std::error_code problem;
  if (out) std::filesystem::rename(part, folder / "train.json", problem);
  if (!out || problem) throw output_error("cannot write " + in_folder(folder / "train.json"));
}

}  // namespace digits
