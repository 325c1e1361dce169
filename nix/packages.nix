# Every package of the flake, for one system.
{ pkgs, version }:
let
  inherit (pkgs) lib;
  hashes = builtins.fromJSON (builtins.readFile ./hashes.json);

  # The code and nothing else, so that editing a page builds nothing anew: a commit does, for
  # programs say theirs. It is all of the code, for its tests too say what `go mod vendor` takes.
  source = builtins.path {
    name = "nstance-source";
    path = ../.;
    filter =
      path: type:
      type == "directory"
      || builtins.match ".*\\.(go|css|html|js|svg)" path != null # with what programs embed
      || builtins.elem (baseNameOf path) [
        "go.mod"
        "go.sum"
      ];
  };

  common = {
    inherit version;
    src = source;
    # Static, as the images' are. `-trimpath` and `-buildid=` are buildGoModule's own.
    env.CGO_ENABLED = 0;
    doCheck = false; # `make test` runs the tests, and has what they need
  };

  # What is downloaded has a name without a commit or a program, and so is downloaded once.
  modules = name: _: { name = "${name}-go-modules"; };

  linked = [
    "-s"
    "-w"
  ];

  about = mainProgram: description: {
    inherit description mainProgram;
    homepage = "https://github.com/nstance/nstance";
    license = lib.licenses.asl20;
  };

  # build makes a package of some of the programs in cmd.
  build =
    {
      pname,
      programs,
      meta,
      postInstall ? "",
    }:
    pkgs.buildGoModule (
      common
      // {
        inherit pname meta postInstall;
        vendorHash = hashes.vendor.nstance;
        overrideModAttrs = modules "nstance";
        subPackages = map (program: "cmd/${program}") programs;
        ldflags = linked ++ [ "-X main.version=${version}" ];
      }
    );

  program =
    name: description:
    build {
      pname = name;
      programs = [ name ];
      meta = about name description;
    };

  # Where a stack looks for what is no program.
  share = ''
    mkdir -p $out/share/nstance/examples
    cp -r ${../examples/dev} $out/share/nstance/examples/dev
    cp -r ${../config} $out/share/nstance/config
  '';

  programs = [
    "nstance-server"
    "nstance-agent"
    "nstance-operator"
    "nstance-admin"
    "nstance-asg"
  ];
  all = rec {
    nstance-server = program "nstance-server" "Keeps groups of machines at their size";
    nstance-agent = program "nstance-agent" "Gives a machine its identity and files";
    nstance-operator = program "nstance-operator" "Makes Nstance a provider of Cluster API";
    nstance-admin = program "nstance-admin" "Asks and changes what shards hold";
    nstance-asg = program "nstance-asg" "Speaks for a server to the Auto Scaling group of its machine";

    default = build {
      pname = "nstance";
      inherit programs;
      meta = about "nstance-admin" "All programs of Nstance";
    };

    dev = build {
      pname = "nstance-dev";
      programs = programs ++ [
        "dev"
        "dev-s3"
      ];
      postInstall = share;
      meta = about "dev" "The development stack: shards with their storage and agents, on one machine";
    };

    # The stack with Kubernetes: a module of its own has the API server on files.
    dev-k8s = pkgs.buildGoModule (
      common
      // {
        pname = "dev-k8s";
        modRoot = "cmd/dev-k8s";
        vendorHash = hashes.vendor.dev-k8s;
        overrideModAttrs = modules "dev-k8s";
        subPackages = [ "." ];
        ldflags = linked;
        meta = about "dev-k8s" "A Kubernetes API server that keeps its objects as JSON files";
      }
    );

    capi-core = pkgs.buildGoModule {
      pname = "capi-core";
      inherit (capi) version src postPatch;
      vendorHash = hashes.vendor.capi-core;
      overrideModAttrs = modules "capi-core";
      env.CGO_ENABLED = 0;
      doCheck = false;
      buildPhase = ''
        runHook preBuild
        go build -ldflags '-s -w -buildid=' -o capi-core sigs.k8s.io/cluster-api/core
        runHook postBuild
      '';
      installPhase = ''
        runHook preInstall
        install -D capi-core $out/bin/capi-core
        runHook postInstall
      '';
      meta = about "capi-core" "The manager of Cluster API's core";
    };

    # Cluster API's kinds and webhooks, which no package of Go has: straight from its module.
    # go.sum is what says that it is the right one; the hash here is of what is taken from it.
    capi = pkgs.stdenv.mkDerivation {
      pname = "nstance-capi";
      version = builtins.head (
        builtins.concatMap (
          line:
          let
            pinned = builtins.match "[[:space:]]*sigs\\.k8s\\.io/cluster-api v([0-9.]+).*" line;
          in
          lib.optionals (pinned != null) pinned
        ) (lib.splitString "\n" (builtins.readFile ../.ci/tools/capi-core.mod))
      );
      src = builtins.path {
        name = "capi-core-module";
        path = ../.ci/tools;
        filter = path: type: builtins.match "capi-core\\.(mod|sum)" (baseNameOf path) != null;
      };
      postPatch = ''
        mv capi-core.mod go.mod
        mv capi-core.sum go.sum
      '';
      nativeBuildInputs = [
        pkgs.go_1_26
        pkgs.cacert
        pkgs.git
      ];
      impureEnvVars = lib.fetchers.proxyImpureEnvVars ++ [ "GOPROXY" ];
      buildPhase = ''
        export HOME=$TMPDIR GOTOOLCHAIN=local
        go mod download sigs.k8s.io/cluster-api
      '';
      installPhase = ''
        config=$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)/core/config
        mkdir -p $out/crds
        install -m 644 $config/crd/bases/*.yaml $out/crds/
        install -m 644 $config/webhook/manifests.yaml $out/webhooks.yaml
      '';
      dontFixup = true;
      outputHashMode = "recursive";
      outputHash = hashes.capi;
    };
  };

  # What `bin/dev --plane` takes: Kubernetes of nixpkgs, which has it for Linux alone, and Cluster
  # API's core.
  plane = pkgs.runCommand "nstance-plane" { } ''
    mkdir -p $out
    for name in kube-apiserver kube-controller-manager; do
      ln -s ${pkgs.kubernetes}/bin/$name $out/$name
    done
    ln -s ${pkgs.kubectl}/bin/kubectl $out/kubectl
    ln -s ${all.capi-core}/bin/capi-core $out/capi-core
    ln -s ${all.capi} $out/capi
  '';
in
all // lib.optionalAttrs pkgs.stdenv.hostPlatform.isLinux { inherit plane; }
