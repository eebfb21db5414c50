// SPDX-License-Identifier: BSL-1.0
// Not compiled: every loop of the first half must be refused, none of the second.
#include <atomic>

std::atomic<bool> done;
std::atomic<int> arrived;

void refused() {
  while (!done) std::this_thread::yield();
  while (arrived < 2) {
    ++tries;
  }
  for (;;) {
    if (done) break;
  }
  for (; !done; std::this_thread::yield()) {
  }
  for (int tries = 0; !done; ++tries) {
  }
  do {
    co_await p.call<&nothing>();
  } while (me.stats().late_replies == before);
  while (co_await p.call<&how_many>() < 2) {
  }
  while (queue.empty()) std::this_thread::yield();
  while (!outbox.empty()) std::this_thread::yield();
  while (i < 3 || !done) ++i;
  int state = 0;
  while (state != 2) state = ask();
  while (
      !done &&
      arrived == 0) {
    std::this_thread::sleep_for(1ms);  // "// bounded: no, this is a text"
  }
  while (!done) log("until.not_yet(done)");
  // bounded:
  while (!done) {
  }
}

void accepted() {
  for (bounded_wait until("it is done"); until.not_yet(done);) std::this_thread::yield();
  while (until.not_yet(co_await p.call<&how_many>() == 2)) {
  }
  for (int i = 0; i < 3; ++i) ask();
  for (int tries = 0; tries < 100 && !done; ++tries) ask();
  for (const int x : numbers) ask(x);
  while (read < size) read += ask();
  while (!queue.empty()) queue.pop_front();
  while (!bytes.empty()) bytes = bytes.subspan(1);
  while (std::getline(in, line)) ask();
  while (!done && clock::now() < end) std::this_thread::yield();
  while (!done) {
    if (clock::now() > end) return;
  }
  for (const node* n = first; n; n = n->next) ask(n);
  // bounded: the model always ends
  while (advance()) {
  }
  while (advance()) {  // bounded: the model always ends
  }
  // while (!done) in a comment
  log("while (!done) in a text");
}
