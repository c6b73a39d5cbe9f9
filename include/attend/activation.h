// The nonlinearities of a feed-forward layer.
#pragma once

namespace attend {

// gelu is exact, with the error function (Hendrycks and Gimpel 2016); gelu_tanh its tanh form; silu = x * sigmoid(x).
enum class Activation { none, relu, gelu, gelu_tanh, silu };
const char* name_of(Activation activation);

// Which elements of a head rotary positions turn together: (2i, 2i+1), or (i, i + rotary_dim / 2).
enum class Pairing { interleaved, halves };
const char* name_of(Pairing pairing);

}  // namespace attend
