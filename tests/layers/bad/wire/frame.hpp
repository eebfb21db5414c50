#include <weft/core/low.hpp>
#include <c10/core/Device.h>
