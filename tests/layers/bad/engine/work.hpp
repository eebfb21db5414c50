#include <weft/optim/step.hpp>
auto now = std::chrono::steady_clock::now();
auto number = reinterpret_cast<std::uintptr_t>(p);
bool aligned = reinterpret_cast<std::uintptr_t>(p.data()) % 16 == 0;
