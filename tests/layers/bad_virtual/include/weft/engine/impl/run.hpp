// Excepted, but not for its random device.
std::thread worker;
auto now = std::chrono::steady_clock::now();
std::random_device seed;
