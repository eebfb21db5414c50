// SPDX-License-Identifier: BSL-1.0
#pragma once
// The loss and accuracy curves as a picture.

#include "records.hpp"

#include <filesystem>
#include <span>

namespace digits {

// Writes a PNG with the training loss (logarithmic) beside the test accuracy, over the epochs.
// Nothing is written where there is no record. Throws output_error where the file did not come to
// be.
void write_curves(const std::filesystem::path& file, std::span<const epoch_record> records);

}  // namespace digits
