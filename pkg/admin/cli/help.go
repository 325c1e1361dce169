package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// describe completes the help of all commands: examples, and the variables that set the flags' defaults.
func describe(a *app, root *cobra.Command) {
	examples := examples()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if lines := examples[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]; cmd.Example == "" && len(lines) > 0 {
			cmd.Example = "  " + root.Name() + " " + strings.Join(lines, "\n  "+root.Name()+" ")
		}
		for _, text := range []string{cmd.PersistentFlags().FlagUsages(), cmd.Flags().FlagUsages()} {
			for _, name := range namesIn(text) {
				f := cmd.PersistentFlags().Lookup(name)
				if f == nil {
					f = cmd.Flags().Lookup(name)
				}
				if variable := variable(a, cmd, name); f != nil && variable != "" && !strings.Contains(f.Usage, variable) {
					f.Usage += " (" + variable + ")"
				}
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// variable returns the environment variable that sets the default of a flag; empty: none does.
func variable(a *app, cmd *cobra.Command, flag string) string {
	name := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	switch {
	case flag == "old-key":
		name = "OLD_KEYS"
	case flag == "output-dir":
		name = "IDENTITY_DIR"
	case flag == "output" && cmd.Name() == "nonce": // a file
		return ""
	}
	if !a.presets[name] {
		return ""
	}
	return presetPrefix + name
}

// presetPrefix begins the variables that set defaults of flags.
const presetPrefix = "NSTANCE_ADMIN_"

// examples are the examples of commands, without the program's name, by the command's path.
func examples() map[string][]string {
	return map[string][]string{
		"shard list":                {"shard list", "shard list -o json"},
		"group list":                {"group list --sort size", "group list --shard us-west-2a -o wide"},
		"group status":              {"group status web -o json"},
		"group explain":             {"group explain web"},
		"group scale":               {"group scale web 5 --shard us-west-2a --wait", "group scale web 0 --all-shards --yes"},
		"group create":              {"group create jobs --template worker --size 2 --shard us-west-2a"},
		"group on-demand":           {`group on-demand jobs '{"namespaces": ["ci"], "max": 10}'`, "group on-demand jobs none"},
		"group rollout abort":       {"group rollout abort web --shard us-west-2a"},
		"group rollout retry":       {"group rollout retry web --shard us-west-2a"},
		"group rollout pause":       {"group rollout pause web --shard us-west-2a"},
		"group rollout resume":      {"group rollout resume web --shard us-west-2a"},
		"group delete":              {"group delete jobs --shard us-west-2a"},
		"group reset":               {"group reset web --shard us-west-2a"},
		"instance list":             {"instance list --group web", "instance list --deleted --sort age"},
		"instance status":           {"instance status knd01m7y19apkenaskp9fvc72c4st"},
		"instance create":           {"instance create web --key nightly-7 --shard us-west-2a"},
		"instance delete":           {"instance delete knd01m7y19apkenaskp9fvc72c4st", "instance delete --key nightly-7"},
		"instance drain":            {"instance drain", "instance drain --once -- ./empty.sh"},
		"instance ack":              {"instance ack knd01m7y19apkenaskp9fvc72c4st"},
		"operator list":             {"operator list --removed"},
		"operator remove":           {"operator remove opr01m7y2hk58ftvbprgat498cpav"},
		"config status":             {"config status"},
		"config refresh":            {"config refresh --all-shards", "config refresh --shard us-west-2a --accept-removal default/web"},
		"config diff":               {"config diff", "config diff us-west-2a.jsonc --shard us-west-2a"},
		"config validate":           {"config validate us-west-2a.jsonc"},
		"cluster nonce":             {"cluster nonce --expiry 1d --output nonce.jwt"},
		"cluster register-operator": {"cluster register-operator --output-dir ~/.nstance"},
		"cluster ca list":           {"cluster ca list"},
		"cluster ca show":           {"cluster ca show > ca.crt"},
		"cluster ca add":            {"cluster ca add next.crt"},
		"cluster ca remove":         {"cluster ca remove 9c14a970748906635a54d6ad28e20ca1456cc096ef3bea49c3044a90f3f21aa6"},
		"cluster secret put":        {"cluster secret put registry-login login.json"},
		"cluster secret reseal":     {"cluster secret reseal --old-key env:OLD_KEY"},
		"cluster config put":        {"cluster config put us-west-2a us-west-2a.jsonc"},
		"cluster backup":            {"cluster backup nstance-2026-11-30.tar.gz"},
		"cluster restore": {
			"cluster restore nstance-2026-11-30.tar.gz --dry-run", "cluster restore nstance-2026-11-30.tar.gz --replace config,groups",
		},
		"storage check": {"storage check --storage-bucket example"},
		"watch":         {"watch --only groups,problems", "watch --all -o json"},
		"serve":         {"serve --bind 127.0.0.1:8080"},
		"version":       {"version"},
	}
}

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		return a.done(cmd.OutOrStdout(), fmt.Sprintf("nstance-admin version %s", a.env.Version), map[string]string{"version": a.env.Version})
	})
}
