// SPDX-License-Identifier: BSL-1.0
// HMAC-SHA256 of a text, by OpenSSL's libcrypto. Included where a worker is made and nowhere else.
#pragma once

#include <weft/core/error.hpp>
#include <weft/engine/fwd.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace weft::engine {

/// 64 hexadecimal digits. Throws rpc_error resource_exhausted if libcrypto cannot compute it.
[[nodiscard]] inline std::string hmac_sha256(std::string_view key, std::string_view text) {
  // Threads of links may greet while a program's own thread is in exit(): libcrypto is not to clean
  // up before them, where nobody has told it to before us.
  [[maybe_unused]] static const int stays = ::OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  std::array<unsigned char, 32> sum{};
  unsigned size = 0;
  if (!::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
              reinterpret_cast<const unsigned char*>(text.data()), text.size(), sum.data(),
              &size) ||
      size != sum.size()) {
    throw rpc_error(errc::resource_exhausted, "libcrypto cannot compute HMAC-SHA256");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * sum.size());
  for (const unsigned char byte : sum) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

/// Equality whose time depends on the lengths only.
[[nodiscard]] inline bool same_secret(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace weft::engine
