# Everything that `make check` asks for, with the C compiler that every shell has; what else a
# target uses it builds itself.
{ pkgs }:
pkgs.mkShell {
  packages = [
    pkgs.go_1_26
    pkgs.git
    pkgs.gnumake
    pkgs.docker-client
    pkgs.nix
    pkgs.nixfmt-tree
  ]
  ++ pkgs.lib.optionals pkgs.stdenv.hostPlatform.isLinux [
    pkgs.chromium
    pkgs.systemd
  ];
  # The tools' modules are content with the Go of the pin, which a test holds.
  GOTOOLCHAIN = "local";
}
