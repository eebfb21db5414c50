// Whose order compilers choose, and whose they do not.
void two() {
  f(draw(2), draw(3));
  const int sum = draw(2) +
                  draw(3);
  const point p(world.decide().pick(2),
                world.decide().chance(5));
  later(net.delay(), draw_duration());
  const ids both(random_id(random_), random_id(random_));
  if (draw(2) == 1) g(draw(3));
  const bool both = draw(2) == 1 && draw(3) == 1;
  const int one = draw(2) == 1 ? draw(3) : draw(4);
  const int first = draw(2);
  h(first, draw(3));
  for (int i = 0; i < draw(2); ++i) g(draw(3));
}
