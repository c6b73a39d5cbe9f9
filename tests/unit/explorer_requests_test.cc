// Requests of every kind, whole and changed at random: none is answered with a defect.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "fuzz/explorer_requests.h"

namespace attend::explorer {
namespace {

TEST(ExplorerRequests, ExamplesAreAnswered) {
  SmallApi api;
  const std::vector<std::string> examples = example_requests();
  ASSERT_GT(examples.size(), 25u);
  for (const std::string& request : examples) {
    const HttpResponse response = api.answer(request);
    EXPECT_EQ(response.status, 200) << request << '\n' << response.body;
  }
}

// ATTEND_REQUESTS is how many; for hours with coverage there is the fuzz target of the same name.
TEST(ExplorerRequests, ChangedAtRandomAreAnsweredOrRefused) {
  const char* const asked = std::getenv("ATTEND_REQUESTS");
  const long count = asked ? std::atol(asked) : 2000;
  SmallApi api;
  std::vector<std::string> requests = example_requests();
  const std::vector<std::string> examples = requests;
  RequestMutator mutator(20261130);
  std::map<int, long> answers;
  for (long i = 0; i < count; ++i) {
    // What was changed once is changed again, so that faults can meet.
    std::string& place = requests[static_cast<std::size_t>(i) % requests.size()];
    if (i % 40 == 39 || place.size() > 4096) place = examples[static_cast<std::size_t>(i) % examples.size()];
    place = mutator.mutated(place, examples);
    const HttpResponse response = api.answer(place);
    ++answers[response.status];
    const bool json = response.content_type == "application/json";
    ASSERT_TRUE(response.status != 500 && response.status != 503) << place << '\n' << response.body.substr(0, 2000);
    ASSERT_TRUE(!json || Json::accept(response.body)) << place << '\n' << response.body.substr(0, 2000);
  }
  EXPECT_GT(answers[200], count / 50) << "some are still whole";
  EXPECT_GT(answers[400], count / 10);
  if (asked)
    for (const auto& [status, times] : answers) std::cout << status << ": " << times << '\n';
}

}  // namespace
}  // namespace attend::explorer
