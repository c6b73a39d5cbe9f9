#include "attend/activation.h"

namespace attend {

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "unknown";
}

const char* name_of(Pairing pairing) { return pairing == Pairing::interleaved ? "interleaved" : "halves"; }

}  // namespace attend
