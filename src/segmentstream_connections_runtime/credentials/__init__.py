"""Where credentials are kept between runs: one port, several stores."""
