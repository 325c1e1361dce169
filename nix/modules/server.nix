# The NixOS module of nstance-server: docs/nix.md.
packagesOf:
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  cfg = config.services.nstance-server;
  option = "services.nstance-server";

  # The shard's config as a file. The server validates it when the machine is built, unless the
  # building machine can't run the program.
  configFile =
    let
      text = (pkgs.formats.json { }).generate "${cfg.shard}.jsonc" cfg.settings;
      canExecute = pkgs.stdenv.buildPlatform.canExecute or (platform: true);
    in
    pkgs.runCommand "nstance-${cfg.shard}.jsonc" { } ''
      ${lib.optionalString (canExecute pkgs.stdenv.hostPlatform) "${cfg.package}/bin/nstance-server --validate ${text}"}
      cp ${text} $out
    '';

  flags = lib.concatMap (
    name: lib.optionals (cfg.flags.${name} != null) [ "--${name}=${toString cfg.flags.${name}}" ]
  ) (builtins.attrNames cfg.flags);

  insecure = lib.optional cfg.storage.insecure "--insecure-storage";

  misnamed = lib.filter (name: builtins.match "[A-Za-z0-9_.-]+" name == null) (
    builtins.attrNames cfg.credentials
  );

  # A bucket directory outside of the state directory has to be created and made writable.
  elsewhere = lib.optional (
    cfg.storage.provider == "dir" && !(lib.hasPrefix "/var/lib/nstance-server/" cfg.storage.bucket)
  ) cfg.storage.bucket;

  # The flags of addresses that other machines connect to, with their default ports. The health
  # endpoint is not one of them.
  ports = {
    election-addr = 8991;
    registration-addr = 8992;
    operator-addr = 8993;
    agent-addr = 8994;
  };
  portOf =
    name: default:
    let
      # A flag overrides the config.
      bound = (cfg.settings.server.bind or { }).${builtins.replaceStrings [ "-" ] [ "_" ] name} or null;
      addr = if cfg.flags.${name} != null then cfg.flags.${name} else bound;
      port = builtins.match ".*:([0-9]+)" addr;
    in
    if addr == null then
      default
    else if port == null then
      throw "${option}.flags.${name}: ${addr} has no port: want one after a colon"
    else
      lib.toInt (builtins.head port);
in
{
  options.services.nstance-server = import ./server-options.nix {
    inherit lib;
    packages = packagesOf pkgs;
    settingsType = (pkgs.formats.json { }).type;
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.storage.provider == "dir" || !(lib.hasPrefix "/" cfg.storage.bucket);
        message = "${option}.storage.bucket: ${cfg.storage.bucket} is a directory: want a bucket's name, or storage.provider = \"dir\"";
      }
      {
        assertion = cfg.storage.provider == "s3" || lib.hasPrefix "/" cfg.storage.bucket;
        message = "${option}.storage.bucket: ${cfg.storage.bucket} is not an absolute path: want one with storage.provider = \"dir\"";
      }
      {
        assertion =
          cfg.settings == null || (cfg.settings.server.provider.kind or "") != "process" || cfg.keepProcesses;
        message = "${option}.keepProcesses: want true with the process provider: otherwise a restart ends all instances";
      }
      {
        assertion = misnamed == [ ];
        message = "${option}.credentials: ${toString misnamed}: want names of letters, digits, dots, dashes and underscores";
      }
    ];

    users.users.nstance-server = {
      isSystemUser = true;
      group = "nstance-server";
      description = "Nstance server";
    };
    users.groups.nstance-server = { };

    environment.systemPackages = [ cfg.adminPackage ];

    systemd.tmpfiles.rules = map (path: "d ${path} 0700 nstance-server nstance-server") elsewhere;

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall (lib.mapAttrsToList portOf ports);

    systemd.services.nstance-server = {
      description = "Nstance server: keeps the machines of one shard";
      documentation = [ "https://github.com/nstance/nstance/blob/main/docs/server.md" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      wantedBy = [ "multi-user.target" ];
      # A failure of an address or of the storage may be temporary, however long it lasts.
      startLimitIntervalSec = 0;
      inherit (cfg) environment;
      serviceConfig = import ./hardening.nix // {
        ExecStart = utils.escapeSystemdExecArgs (
          [
            "${cfg.package}/bin/nstance-server"
            "--shard=${cfg.shard}"
            "--storage-provider=${cfg.storage.provider}"
            "--storage-bucket=${cfg.storage.bucket}"
            "--cache-dir=/var/cache/nstance-server"
          ]
          ++ insecure
          ++ flags
        );
        ExecStartPre = lib.optional (cfg.settings != null) (
          utils.escapeSystemdExecArgs (
            [
              "${cfg.adminPackage}/bin/nstance-admin"
              "cluster"
              "config"
              "put"
              "--storage-provider=${cfg.storage.provider}"
              "--storage-bucket=${cfg.storage.bucket}"
            ]
            ++ insecure
            ++ [
              cfg.shard
              "${configFile}"
            ]
          )
        );
        EnvironmentFile = cfg.environmentFiles;
        LoadCredential = lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials;
        Restart = "always";
        RestartSec = 1;
        # Longer than server.shutdown_timeout can be.
        TimeoutStopSec = 60;
        KillMode = if cfg.keepProcesses then "process" else "control-group";
        LimitNOFILE = 65536;

        User = "nstance-server";
        Group = "nstance-server";
        SupplementaryGroups = cfg.extraGroups;
        ReadWritePaths = elsewhere;
        StateDirectory = "nstance-server";
        StateDirectoryMode = "0700";
        CacheDirectory = "nstance-server";
        CacheDirectoryMode = "0700";
        UMask = "0077";
      };
    };
  };
}
