#include "explorer/run_edits.h"

namespace attend::explorer {
namespace {

class NoEdits : public RunEdits {
 public:
  const std::string& key() const override { return key_; }
  std::unique_ptr<EditingProbe> probe(const LoadedModel&) const override { return nullptr; }

 private:
  std::string key_;
};

}  // namespace

std::shared_ptr<const RunEdits> no_edits() {
  static const auto none = std::make_shared<const NoEdits>();
  return none;
}

std::shared_ptr<const RunEdits> read_edits(Fields& request, const LoadedModel&, const PreparedInput&, const Limits&,
                                           const StopSignal&) {
  const Json* list = request.find("edits");
  if (!list || list->empty()) return no_edits();
  throw Error(ErrorKind::argument, "edits", "are not made by this build", "leave them out");
}

}  // namespace attend::explorer
