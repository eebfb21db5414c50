// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/path.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

namespace wire_path {

TEST_CASE("path: arrives as it was, also inside a value") {
  using std::filesystem::path;
  const std::vector<path> sent{"", "/", "model/net.pt", "../\xff not utf-8", "a//b/."};
  weft::message m;
  weft::encode(m.payload(), sent);
  weft::incoming_message in(std::move(m).finish({}));
  weft::reader r = in.payload();
  const auto got = weft::decode<std::vector<path>>(r);
  REQUIRE(got.size() == sent.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].native() == sent[i].native());
  static_assert(weft::structure_of<path>() != weft::structure_of<std::string>());
}

}  // namespace wire_path
