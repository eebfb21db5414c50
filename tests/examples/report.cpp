// SPDX-License-Identifier: BSL-1.0
#include "../../examples/train_digits/console.hpp"
#include "../../examples/train_digits/records.hpp"
#include "../../examples/train_digits/settings.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <core/temporary_folder.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace {

digits::epoch_part part(int trainer, int epoch) {
  return {.trainer = trainer,
          .epoch = epoch,
          .samples = 100,
          .steps = 4,
          .loss_sum = 2.0 + trainer,
          .seconds = 0.5 + trainer,
          .tested = 10,
          .correct = 8 + trainer,
          .bytes = 1000,
          .calls = 12};
}

// What a console writes, as text.
template <class Use>
std::string written(digits::console_style style, Use use) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    digits::console console(file, style);
    use(console);
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  REQUIRE(std::fseek(file, 0, SEEK_SET) == 0);
  const auto got = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  REQUIRE(got == text.size());
  return text;
}

const digits::progress halfway{
    .epoch = 3, .epochs = 6, .done = 50, .total = 100, .loss = 0.25, .samples_per_second = 2};

}  // namespace

TEST_CASE("digits records: an epoch is complete when every trainer has said its part") {
  digits::history run(2);
  CHECK(run.test_accuracy() == 0);
  CHECK_FALSE(run.add(part(1, 0)).has_value());
  CHECK_FALSE(run.add(part(1, 1)).has_value());  // one trainer is ahead
  const auto record = run.add(part(0, 0));
  REQUIRE(record.has_value());
  CHECK(record->epoch == 1);
  CHECK(record->loss == doctest::Approx(5.0 / 8));
  CHECK(record->accuracy == doctest::Approx(0.85));
  CHECK(record->samples_per_second == doctest::Approx(200 / 1.5));
  CHECK(record->bytes_per_step == doctest::Approx(250));
  CHECK(record->calls_per_step == doctest::Approx(3));
  CHECK(run.records().size() == 1);
  CHECK(run.test_accuracy() == doctest::Approx(0.85));
}

TEST_CASE("digits records: a trainer that does not exist or repeats itself is refused") {
  digits::history run(1);
  CHECK_THROWS_AS(run.add(part(1, 0)), std::invalid_argument);
  CHECK_THROWS_AS(run.add(part(-1, 0)), std::invalid_argument);
  CHECK(run.add(part(0, 0)).has_value());
  CHECK_THROWS_WITH_AS(run.add(part(0, 0)), "trainer 0 has ended epoch 0 before",
                       std::invalid_argument);
}

TEST_CASE("digits records: a trainer without any batch spoils no mean") {
  digits::history run(1);
  const auto record = run.add({.trainer = 0, .epoch = 0, .tested = 10, .correct = 5});
  REQUIRE(record.has_value());
  CHECK(record->loss == 0);
  CHECK(record->samples_per_second == 0);
  CHECK(record->accuracy == doctest::Approx(0.5));
}

TEST_CASE("digits records: the summary names every figure") {
  CHECK(digits::summary({.epoch = 3,
                         .loss = 0.12345,
                         .accuracy = 0.951,
                         .samples_per_second = 4567,
                         .bytes_per_step = 31234,
                         .calls_per_step = 5},
                        30) == "epoch 3/30: loss 0.1235, test accuracy 0.951, 4567 samples/s, 31.2 "
                               "kB and 5.0 calls per step");
}

TEST_CASE("digits json: has test_accuracy at the top and a record per epoch") {
  digits::history run(1);
  run.add(part(0, 0));
  auto last = part(0, 1);
  last.correct = 9;
  last.loss_sum = std::numeric_limits<double>::quiet_NaN();
  run.add(last);
  digits::settings how;
  how.seed = 7;

  const weft::testing::temporary_folder out;
  const auto nested = out.root / "a" / "b";
  digits::prepare_folder(nested);
  digits::write_json(nested, digits::to_json(run, how, 1.5));
  std::ifstream in(nested / "train.json");
  const auto read = nlohmann::json::parse(in);
  REQUIRE(read["test_accuracy"].is_number());
  CHECK(read["test_accuracy"] == 0.9);
  CHECK(read["seconds"] == 1.5);
  CHECK(read["settings"]["seed"] == 7);
  REQUIRE(read["epochs"].size() == 2);
  CHECK(read["epochs"][0]["epoch"] == 1);
  CHECK(read["epochs"][0]["loss"] == 0.5);
  CHECK(read["epochs"][1]["loss"].is_null());
  CHECK(std::distance(std::filesystem::directory_iterator(nested), {}) ==
        1);  // nothing half-written
}

TEST_CASE("digits folder: one that cannot be made is refused by name") {
  const weft::testing::temporary_folder out;
  std::ofstream(out.root / "file") << "x";
  CHECK_THROWS_AS(digits::prepare_folder(out.root / "file"), digits::output_error);
  try {
    digits::prepare_folder(out.root / "file" / "below");
    FAIL("a folder below a file was made");
  } catch (const digits::output_error& e) {
    CHECK(std::string(e.what()).find("file/below") != std::string::npos);
  }
}

TEST_CASE("digits bar: shows epoch, loss, rate and time left, within the width") {
  CHECK(digits::progress_line(halfway, 200) ==
        "epoch 3/6 [###############---------------]  50%  loss 0.2500  2 samples/s  ETA 0:25");
  CHECK(digits::progress_line(halfway, 70).size() == 70);
  for (std::size_t width : {0U, 1U, 20U, 50U, 60U})
    CHECK(digits::progress_line(halfway, width).size() <= width);
  auto begun = halfway;
  begun.done = 0;
  begun.total = 0;
  begun.samples_per_second = 0;
  CHECK(digits::progress_line(begun, 200).find("ETA") == std::string::npos);
}

TEST_CASE("digits console: not on a terminal, whole lines and progress now and then") {
  const auto begin = digits::console::clock::time_point{} + std::chrono::hours(1);
  const auto text = written(digits::console_style::detect, [&](digits::console& to) {
    to.show(halfway, begin);
    to.log("trainer0", "hello");
    to.show(halfway, begin + std::chrono::seconds(1));
    to.show(halfway, begin + std::chrono::seconds(6));
    to.log("", "bye");
  });
  CHECK(text == "[trainer0] hello\n" + digits::progress_line(halfway, 120) + "\nbye\n");
}

TEST_CASE("digits console: on a terminal the bar stays below the log") {
  const auto begin = digits::console::clock::time_point{} + std::chrono::hours(1);
  const auto bar = digits::progress_line(halfway, 79);
  const std::string clear = "\r\x1b[2K";
  const auto text = written(digits::console_style::terminal, [&](digits::console& to) {
    to.show(halfway, begin);
    to.show(halfway, begin + std::chrono::milliseconds(1));  // too early to redraw
    to.log("trainer0", "hello");
  });
  CHECK(text == clear + bar + clear + "[trainer0] hello\n" + bar + clear);
}
