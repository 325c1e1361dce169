# As much of nixpkgs as the flake of this repository uses, for machines that have Nix and can't
# reach the real one. Go and the shell are the machine's own: host.json says where they are.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix;
      host = builtins.fromJSON (builtins.readFile ./host.json);
      packagesFor =
        system:
        import ./packages.nix {
          inherit
            lib
            host
            system
            packagesFor
            ;
        };
    in
    {
      lib = lib // {
        nixosSystem = import ./nixos.nix { inherit lib packagesFor; };
      };
      legacyPackages = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ] packagesFor;
    };
}
