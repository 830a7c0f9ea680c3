#include <condition_variable>
#include <filesystem>
#include <future>
#include <iostream>
#include <locale>
#include <mutex>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <typeinfo>
#include <vector>

#include "library.h"

#define CHECK(x) \
  if (!(x)) return std::cerr << __LINE__ << ": " #x << std::endl, 1

int main() {
  // An exception of one library, through another, to the program.
  int ended = 0;
  try {
    make_through(-1, ended);
    return 1;
  } catch (const std::logic_error& error) {
    CHECK(std::string(error.what()) == "radius -1.000000");
  }
  CHECK(ended == 1);

  // Types of a library are the same types here.
  auto shape = make_through(2, ended);
  CHECK(dynamic_cast<Circle*>(shape.get()) && typeid(*shape) == typeid(Circle));
  CHECK(shape->area() == 12);

  // Threads, with what waits for them.
  std::mutex mutex;
  std::condition_variable ready;
  int count = 0;
  std::once_flag once;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      std::call_once(once, [&] { count += 100; });
      std::lock_guard lock(mutex);
      ++count;
      ready.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    CHECK(ready.wait_for(lock, std::chrono::seconds(60), [&] { return count == 108; }));
    CHECK(!ready.wait_for(lock, std::chrono::milliseconds(1), [] { return false; }));
  }
  for (auto& thread : threads) thread.join();
  auto later = std::async(std::launch::async, []() -> int { throw std::runtime_error("later"); });
  try {
    later.get();
    return 1;
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "later");
  }

  // Locales: facets of the C library's, and one of the program's.
  struct Dots : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::ostringstream text;
  text.imbue(std::locale(std::locale::classic(), new Dots));
  text << 1234567;
  CHECK(text.str() == "1.234.567");
  std::locale utf8("C.UTF-8");
  CHECK(std::isalpha(L'\u00e4', utf8) && std::toupper(L'\u00e4', utf8) == L'\u00c4');
  try {
    std::locale("nowhere");
    return 1;
  } catch (const std::runtime_error&) {
  }

  CHECK(std::regex_match("libstdc++.so.6", std::regex(R"(lib.*\.so\.\d)")));
  CHECK(std::filesystem::exists("/proc/self/exe"));
  CHECK(std::random_device{}.entropy() >= 0 && std::random_device{}() + 1u > 0);
  std::cout << "passed" << std::endl;
}
