// Excepted, but asks no timer.
auto now = std::chrono::steady_clock::now();
