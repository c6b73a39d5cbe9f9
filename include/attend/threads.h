// How many threads the engine uses. Results do not depend on it: the same bits for any number.
#pragma once

namespace attend {

// Sets the number of threads of the process-wide team, the caller included. Throws Error(argument) unless 1..256.
// Not to be called while another thread is inside the library.
void set_threads(int count);

// The number in force; at first the number of processors this process may run on.
int threads();

}  // namespace attend
