// Asks the machine. A comment may name steady_clock::now and std::random_device.
using time_point = std::chrono::steady_clock::time_point;
const char* text = "std::thread";
auto now = std::chrono::steady_clock::now();
auto also_now = std::time(nullptr);
asio::steady_timer timer;
void rest() { std::this_thread::sleep_for(1ms); }
std::thread helper;
std::condition_variable changed;
std::random_device seed;
int number = rand();
std::mt19937 generator;
std::mt19937_64 seeded(from_outside);
std::uniform_int_distribution<int> dice(1, 6);
void mix() { std::shuffle(a.begin(), a.end(), seeded); }
std::map<node*, int> order;
std::set<int> fine;
std::hash<const node*> hash;
auto address = reinterpret_cast<std::uintptr_t>(p);
bool aligned = reinterpret_cast<std::uintptr_t>(p.data()) % 16 == 0;
std::promise<int> promised;
void tell(std::atomic<int>& all) { all.notify_all(); }
