auto begin = std::chrono::steady_clock::now();
