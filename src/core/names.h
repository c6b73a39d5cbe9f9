// As rooms of the library name it.
#pragma once

#include "attend/names.h"
