// SPDX-License-Identifier: BSL-1.0
#pragma once
// The command line of train_digits. Every process of the run reads the same one.

#include "settings.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace digits {

namespace detail {

// A check for an option whose value is a number between two bounds: refuses in a sentence.
template <class Number>
CLI::Validator between(Number low, Number high, const std::string& what) {
  const auto check = [=](std::string& text) -> std::string {
    Number value{};
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
    return "'" + text + "' is not " + what;
  };
  return CLI::Validator(check, "");
}

}  // namespace detail

// Reads the command line into `into`. With a value the program is to end at once with that exit
// status: after --help, or after a sentence on stderr about what is wrong.
inline std::optional<int> parse(int argc, const char* const* argv, settings& into) {
  CLI::App app{
      "Trains a small network to read handwritten digits, across processes: one server owns the "
      "first "
      "half of the model, every trainer a second half of its own, and all train at the same time."};
  app.get_formatter()->column_width(16);
  app.option_defaults()->always_capture_default();

  app.add_option(
         "--trainers", into.trainers,
         "How many trainers share the server's encoder. Each is a process of its own and sees "
         "its share of the batches.")
      ->type_name("N")
      ->check(detail::between(1, 64, "a number of trainers: 1 to 64"));
  auto* loaders =
      app.add_option(
             "--loaders", into.loaders,
             "How many processes hold the rows and stream batches to the trainers; 0: each trainer "
             "reads the file. Each batch goes to one trainer.")
          ->type_name("N")
          ->check(detail::between(0, 16, "a number of loaders: 0 to 16"));
  app.add_option("--kill-loader", into.kill_loader,
                 "Kill that loader, from 1, in the middle of the run: the others read the rest of "
                 "its rows.")
      ->type_name("N")
      ->needs(loaders)
      ->check(detail::between(1, 16, "the number of a loader: from 1"));
  app.add_option("--epochs", into.epochs, "How often each training image is seen.")
      ->type_name("N")
      ->check(detail::between(1, 100000, "a number of epochs: 1 to 100000"));
  app.add_option("--batch", into.batch, "Images in one step of one trainer.")
      ->type_name("N")
      ->check(detail::between<std::int64_t>(1, 1000000, "a batch size: 1 to 1000000"));
  app.add_option("--lr", into.learning_rate, "Learning rate of Adam.")
      ->type_name("X")
      ->check(detail::between(1e-9, 10.0, "a learning rate: more than 0, at most 10"));
  app.add_option(
         "--seed", into.seed,
         "Decides which images are held out for the test, how the model begins, and the order "
         "of the batches.")
      ->type_name("N")
      ->check(
          detail::between<std::uint64_t>(0, 1ULL << 53, "a seed: a whole number from 0 to 2^53"));
  app.add_option("--data", into.data,
                 "The images: rows of 64 pixels (0 to 16) and a label (0 to 9), between commas.")
      ->type_name("FILE")
      ->check(CLI::Validator(
          [](std::string& file) {
            return CLI::ExistingFile(file).empty() ? std::string{} : "there is no file " + file;
          },
          ""));
  app.add_option("--out", into.out,
                 "The folder for curves.png and train.json; it is created where it is missing.")
      ->type_name("DIR");
  auto* checkpoint =
      app.add_option("--checkpoint", into.checkpoint,
                     "A file that is replaced after each epoch, by the state of the whole run. "
                     "The trainers wait for one another then.")
          ->type_name("FILE");
  app.add_flag("--resume", into.resume,
               "Go on from the file of --checkpoint, if it is there, else begin.")
      ->needs(checkpoint);
  app.add_flag("--local", into.local,
               "Train the same model in this one process, without weft, to compare: one trainer.")
      ->excludes(checkpoint)
      ->excludes(loaders);
  app.add_option("--threads", into.threads,
                 "Threads that libtorch computes with in each process; 0 divides the cores between "
                 "the processes.")
      ->type_name("N")
      ->check(detail::between(0, 1024, "a number of threads: 0 to 1024"));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? EXIT_SUCCESS : 2;
  }
  if (into.kill_loader > into.loaders || (into.kill_loader > 0 && into.loaders < 2)) {
    std::fputs("--kill-loader needs another loader that goes on: see --loaders\n", stderr);
    return 2;
  }
  if (into.local) into.trainers = 1;
  return std::nullopt;
}

}  // namespace digits
