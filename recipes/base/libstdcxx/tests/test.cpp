// The parts of the C++ library that live in the shared object: streams, locales, filesystem,
// threads.
#include <filesystem>
#include <future>
#include <iostream>
#include <sstream>

int main() {
  std::ostringstream text;
  text << std::boolalpha << std::filesystem::exists("/") << ' '
       << std::async(std::launch::async, [] { return 42; }).get();
  std::cout << text.str() << '\n';
  return text.str() == "true 42" ? 0 : 1;
}
