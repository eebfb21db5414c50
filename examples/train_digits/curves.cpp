// SPDX-License-Identifier: BSL-1.0
#include "curves.hpp"

#include <plplot/plstream.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <system_error>
#include <vector>

namespace digits {
namespace {

enum colour : PLINT { background = 0, text = 1, loss_line = 2, accuracy_line = 3 };

struct axis {
  double low;
  double high;
};

// One plot with a line and a dot per epoch. A logarithmic one takes log10 of the values.
void plot(plstream& page, const std::vector<PLFLT>& x, const std::vector<PLFLT>& y, axis vertical,
          const char* vertical_options, const char* what, const char* title, colour line) {
  page.adv(0);
  page.vsta();
  page.wind(x.front() - 0.5, x.back() + 0.5, vertical.low, vertical.high);
  page.col0(text);
  page.box("bcnst", 0, 0, vertical_options, 0, 0);
  page.lab("epoch", what, title);
  page.col0(line);
  page.width(2);
  page.line(static_cast<PLINT>(x.size()), x.data(), y.data());
  page.poin(static_cast<PLINT>(x.size()), x.data(), y.data(), 17);
  page.width(1);
}

}  // namespace

void write_curves(const std::filesystem::path& file, std::span<const epoch_record> records) {
  if (records.empty()) return;
  std::vector<PLFLT> epoch, loss, accuracy;
  for (const auto& record : records) {
    epoch.push_back(record.epoch);
    loss.push_back(std::log10(std::isfinite(record.loss) ? std::max(record.loss, 1e-6) : 1e6));
    accuracy.push_back(record.accuracy);
  }
  const auto [lowest, highest] = std::ranges::minmax(loss);
  const double floor = std::min(std::floor(*std::ranges::min_element(accuracy) * 10) / 10, 0.9);

  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  {
    plstream page;
    page.sdev("pngcairo");
    page.sfnam(file.c_str());
    page.spage(0, 0, 1200, 500, 0, 0);
    page.scolbg(255, 255, 255);
    page.scol0(text, 50, 50, 50);
    page.scol0(loss_line, 190, 70, 40);
    page.scol0(accuracy_line, 30, 100, 170);
    page.star(2, 1);
    plot(page, epoch, loss,
         {std::floor(lowest), std::max(std::ceil(highest), std::floor(lowest) + 1)}, "bcnstl",
         "loss", "training loss", loss_line);
    plot(page, epoch, accuracy, {floor, 1.0}, "bcnst", "accuracy", "test accuracy", accuracy_line);
  }
  if (!std::filesystem::exists(file))
    throw output_error("cannot write '" + file.string() + "': PLplot made no picture");
}

}  // namespace digits
