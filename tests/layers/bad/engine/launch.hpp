// Starts processes, so it may look at the clock.
auto now = std::chrono::steady_clock::now();
