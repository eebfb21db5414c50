#include <weft/rpc/high.hpp>
#include <ATen/ATen.h>
