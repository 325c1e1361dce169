# A shard on one machine and an instance on another, for real: `nix build .#checks.x86_64-linux.shard`.
{ pkgs, self }:
let
  storage = "--storage-provider=dir --storage-bucket=/var/lib/nstance-server/bucket";
  admin = "nstance-admin --servers example=127.0.0.1:8993 --identity-dir /var/lib/nstance-server/admin";
in
pkgs.testers.runNixOSTest {
  name = "nstance-shard";

  nodes.server =
    {
      config,
      lib,
      pkgs,
      ...
    }:
    {
      imports = [
        self.nixosModules.default
        ../example/server.nix
      ];
      environment.etc."nstance/encryption-key".text = "thisisatest32bytekey123456789012";
      environment.systemPackages = [ pkgs.jq ];
      services.nstance-server = {
        flags.advertise-host = config.networking.primaryIPAddress;
        settings = {
          # What a cloud does when it boots a machine: here its process only says who it is to be.
          server.provider.options.agent = lib.mkForce "${pkgs.writeShellScript "boot" ''
            [ -n "$ELSEWHERE" ] || exec ${config.services.nstance-agent.package}/bin/nstance-agent
            ${pkgs.coreutils}/bin/env | ${pkgs.gnugrep}/bin/grep -E '^NSTANCE_(INSTANCE|SERVER)_' >"$NSTANCE_IDENTITY_DIR/agent.env.new"
            ${pkgs.coreutils}/bin/mv "$NSTANCE_IDENTITY_DIR/agent.env.new" "$NSTANCE_IDENTITY_DIR/agent.env"
            exec ${pkgs.coreutils}/bin/sleep infinity
          ''}";
          groups.default.elsewhere = {
            template = "knd";
            size = 1;
            args.env.ELSEWHERE = "1";
          };
        };
      };
    };

  nodes.machine = {
    imports = [
      self.nixosModules.default
      ../example/machine.nix
    ];
  };

  testScript = ''
    import json, shlex

    def at_size(group):
        return f"${admin} group list -o json | jq -e '.[] | select(.key == \"{group}\" and .size == .actual_size)'"

    def instances():
        return {i["id"] for i in json.loads(server.succeed("${admin} instance list -o json"))}

    start_all()
    server.wait_for_unit("nstance-server.service")
    server.wait_until_succeeds("curl -sf http://127.0.0.1:8990 | grep -q leading")
    # The files of the bucket are the server's, so its user is who asks it.
    server.succeed(
        "NSTANCE_ENCRYPTION_KEY=$(cat /etc/nstance/encryption-key) runuser -u nstance-server -- "
        "nstance-admin cluster register-operator --output-dir /var/lib/nstance-server/admin ${storage}"
    )

    with subtest("agents register"):
        server.wait_until_succeeds(at_size("web"))

    with subtest("an instance on another machine registers"):
        env = server.wait_until_succeeds("ls /var/lib/nstance-server/agents/example/*/identity/agent.env").strip()
        folder = env.removesuffix("/agent.env")
        # The last is what the agent waits for.
        for name in ["ca.crt", "nonce.jwt", "agent.env"]:
            text = shlex.quote(server.succeed(f"cat {folder}/{name}"))
            to = "/var/lib/nstance-agent/" + ("agent.env" if name == "agent.env" else "identity/" + name)
            machine.succeed(f"printf %s {text} >{to}")
        server.wait_until_succeeds(at_size("elsewhere"))
        machine.wait_for_unit("nstance-agent.service")
        machine.fail("test -e /var/lib/nstance-agent/identity/nonce.jwt")

    with subtest("a server that is killed comes back, and instances don't notice"):
        before = instances()
        server.succeed("systemctl kill --signal=KILL --kill-whom=main nstance-server.service")
        server.wait_until_succeeds("curl -sf http://127.0.0.1:8990 | grep -q leading")
        for group in ["web", "elsewhere"]:
            server.wait_until_succeeds(at_size(group))
        assert instances() == before, f"{instances()} instead of {before}"

    with subtest("no other user may read what the server keeps"):
        server.fail("su -s /bin/sh nobody -c 'ls /var/lib/nstance-server'")
  '';
}
