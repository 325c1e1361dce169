# The packages that the flake names. What is built is built for real, by the machine's own Go.
{
  lib,
  host,
  system,
  packagesFor,
}:
let
  # Attributes of a derivation are environment of its builder.
  plain =
    set:
    removeAttrs set [
      "meta"
      "passthru"
      "env"
      "nativeBuildInputs"
      "impureEnvVars"
      "overrideModAttrs"
    ];
  # What no builder sees is looked at all the same.
  seen =
    args:
    builtins.deepSeq [
      (args.meta or { })
      (map (tool: tool.name) (args.nativeBuildInputs or [ ]))
      (args.impureEnvVars or [ ])
    ];
  mkDerivation =
    args:
    seen args derivation (
      host.environment
      // plain args
      // (args.env or { })
      // {
        inherit system;
        name = args.name or "${args.pname}-${args.version}";
        builder = host.shell;
        args = [ ./build.sh ];
        PATH = host.path;
      }
    )
    // {
      meta = args.meta or { };
      pname = args.pname or args.name;
      version = args.version or "";
    }
    // (args.passthru or { });

  buildGoModule =
    {
      pname,
      version,
      src,
      vendorHash,
      modRoot ? ".",
      ldflags ? [ ],
      ...
    }@args:
    let
      goModules = mkDerivation {
        inherit ((args.overrideModAttrs or (_: { name = "${pname}-${version}-go-modules"; })) { }) name;
        inherit src modRoot;
        postPatch = args.postPatch or "";
        buildPhase = ''
          cd $modRoot
          GOFLAGS= go mod vendor
        '';
        installPhase = "cp -r vendor $out";
        outputHashMode = "recursive";
        outputHash = vendorHash;
      };
    in
    mkDerivation (
      args
      // {
        inherit modRoot goModules;
        ldflags = builtins.concatStringsSep " " (ldflags ++ [ "-buildid=" ]);
        subPackages = builtins.concatStringsSep " " (map (p: "./${p}") (args.subPackages or [ "." ]));
        # Nothing but what was vendored.
        configurePhase = ''
          export GOPROXY=off GOMODCACHE=$TMPDIR/modules GOFLAGS='-mod=vendor -trimpath'
          cd $modRoot
          cp -r $goModules vendor
        '';
        buildPhase =
          args.buildPhase or ''
            mkdir -p $TMPDIR/bin
            go build -o $TMPDIR/bin/ -ldflags "$ldflags" $subPackages
          '';
        installPhase =
          args.installPhase or ''
            mkdir -p $out
            cp -r $TMPDIR/bin $out/bin
          '';
        passthru = {
          inherit goModules vendorHash;
          go.version = host.goVersion;
        };
      }
    );

  runCommand =
    name: env: script:
    mkDerivation (
      env
      // {
        inherit name;
        buildPhase = script;
      }
    );

  hostPlatform = {
    inherit system;
    isLinux = lib.hasSuffix "-linux" system;
  };

  # What only the real nixpkgs has can be named, and not built.
  elsewhere =
    name:
    runCommand name { } "echo ${name} is not part of the stub >&2; exit 1"
    // {
      version = host.goVersion;
    };
  # What every machine has.
  here = name: {
    type = "derivation";
    inherit name;
    outPath = "/usr";
  };
in
{
  inherit lib buildGoModule runCommand;
  stdenv = {
    inherit mkDerivation;
    inherit hostPlatform;
  };
  mkShell =
    args:
    mkDerivation (
      removeAttrs args [ "packages" ]
      // {
        name = "shell";
        passthru = { inherit (args) packages; };
      }
    );
  writeText = name: text: runCommand name { inherit text; } "printf %s \"$text\" >$out";
  writeShellScript =
    name: text:
    runCommand name { inherit text; } ''
      printf '#!%s\n%s' "$SHELL" "$text" >$out
      chmod +x $out
    '';
  formats.json = _: {
    type = lib.types.attrsOf lib.types.anything;
    generate = name: value: runCommand name { text = builtins.toJSON value; } "printf %s \"$text\" >$out";
  };
  # A test is evaluated as far as that goes without machines to run it on.
  testers.runNixOSTest =
    test:
    let
      nixosSystem = import ./nixos.nix { inherit lib packagesFor; };
      machine =
        name: module:
        (nixosSystem {
          inherit system;
          modules = [ module ];
        }).config.system.build.toplevel;
    in
    runCommand test.name {
      machines = lib.mapAttrsToList machine test.nodes;
      inherit (test) testScript;
    } "echo the stub has no machines to run ${test.name} on >&2; exit 1"
    // {
      inherit (test) testScript;
    };
}
// lib.genAttrs [ "coreutils" "gnugrep" ] here
// lib.genAttrs [
  "go_1_26"
  "git"
  "gnumake"
  "chromium"
  "docker-client"
  "nix"
  "systemd"
  "nixfmt-tree"
  "cacert"
  "jq"
] elsewhere
# Kubernetes is the one of `make testplane`, where that was built.
// lib.genAttrs [ "kubernetes" "kubectl" ] (
  name:
  if !hostPlatform.isLinux then
    throw "${name} is not available on the requested hostPlatform ${system}"
  else if host.plane == "" then
    elsewhere name
  else
    runCommand name { } "mkdir $out; ln -s ${host.plane} $out/bin"
)
