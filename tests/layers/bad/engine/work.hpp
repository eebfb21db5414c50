#include <weft/optim/step.hpp>
