package server_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/server"
)

// TestValidate: a file is checked as a server of this build would check it.
func TestValidate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const process = `"kind": "process", "options": { "dir": "/d", "agent": "/no/such/agent" }`
	good := strings.Replace(s.text(), `"kind": "fake"`, process, 1)
	docker := func(options string) string {
		return strings.Replace(good, process, `"kind": "docker", "options": `+options, 1)
	}
	aws := func(region, options string) string {
		text := strings.Replace(good, process, `"kind": "aws", "options": `+options, 1)
		text = strings.Replace(text, `"vars": { "n": 1 }`, `"instance_type": "t3.small", "args": { "ImageId": "ami-0123456789abcdef0" }`, 1)
		return strings.Replace(text, `"region": "r"`, `"region": `+region, 1)
	}
	userdata := func(encoding string, comments int) string { // with the nonce and the CAs, more than 16 kB from 3,700 comments on
		const field = `"instance_type": "t3.small"`
		own := fmt.Sprintf(`"userdata": { "encoding": %q, "content": "#!/bin/sh\n%s{{ .Nonce }}{{ .Cluster.CACert }}" }`,
			encoding, strings.Repeat(`# x\n`, comments))
		text := strings.Replace(aws(`"eu-central-1"`, `{}`), field, field+", "+own, 1)
		return strings.Replace(text, `"big": {`, `"big": { "args": { "ImageId": "ami-0123456789abcdef0" },`, 1)
	}
	for name, c := range map[string]struct{ text, says, wrong string }{
		"good": {good, "is valid", ""},
		"metrics": {strings.Replace(good, `"agent_addr": "127.0.0.1:0"`,
			`"agent_addr": "127.0.0.1:0", "metrics_addr": "127.0.0.1:9100"`, 1), "is valid", ""},
		"a provider that is not there": {
			s.text(), "",
			`server.provider.kind: "fake" is not part of this build`,
		},
		"an address that the provider can't move": {strings.Replace(good, `"bind": {`,
			`"leader_network": { "ipv4": "10.0.0.9", "interface_id": "net" }, "bind": {`, 1), "",
			"server.leader_network.interface_id: the provider process can't move addresses"},
		"an address that something else moves": {strings.Replace(good, `"bind": {`,
			`"leader_network": { "ipv4": "10.0.0.9", "ipv6": "fd00::9" }, "bind": {`, 1), "is valid", ""},
		"an address of a kind that the provider can't move": {
			strings.Replace(docker(`{ "image": "i" }`), `"bind": {`,
				`"leader_network": { "ipv6": "fd00::9", "interface_id": "net" }, "bind": {`, 1), "",
			"server.leader_network.ipv6: the provider docker can only move an IPv4 address"},
		"userdata that EC2 refuses":                    {userdata("plain", 3700), "", "templates.knd.userdata: 16"},
		"userdata that compression makes short enough": {userdata("gzip", 9000), "is valid", ""},
		"userdata that no machine recognizes": {strings.Replace(good, `"vars": { "n": 1 }`,
			`"vars": { "n": 1 }, "userdata": { "content": "\n#!/bin/sh" }`, 1), "",
			"templates.knd.userdata.content: the first line is empty when rendered"},
		"a region that is none":            {aws(`"Frankfurt"`, `{}`), "", `server.provider.region: "Frankfurt" is not valid`},
		"an option that aws does not have": {aws(`"eu-central-1"`, `{ "vpc": "x" }`), "", "server.provider.options.vpc: no such field"},
		"an interface that is none of EC2": {
			strings.Replace(aws(`"eu-central-1"`, `{}`), `"bind": {`,
				`"leader_network": { "ipv4": "10.0.0.9", "interface_id": "eth1" }, "bind": {`, 1), "",
			`server.leader_network.interface_id: "eth1" is not valid: want a network interface ID such as eni-`,
		},
		"args that the provider refuses": {strings.Replace(good, `"vars": { "n": 1 }`, `"args": { "colour": "red" }`, 1), "",
			"templates.knd.args.colour: no such field (have: env)"},
		"an option that the provider does not have": {
			strings.Replace(good, `"dir": "/d"`, `"folder": "x"`, 1), "",
			"server.provider.options.folder: no such field (have: agent, args_env, dir"},
		"processes without a folder": {strings.Replace(good, `"dir": "/d", `, ``, 1), "", "server.provider.options.dir: required"},
		"processes of nothing":       {strings.Replace(good, process, `"kind": "process"`, 1), "", "server.provider.options.agent: required"},
		"no time to stop": {strings.Replace(good, `"dir": "/d"`, `"dir": "/d", "stop_grace": "-5s"`, 1), "",
			"server.provider.options.stop_grace: -5s is not valid: want more than 0"},
		"containers":                  {docker(`{ "image": "i" }`), "is valid", ""},
		"containers of no image":      {docker(`{}`), "", "server.provider.options.image: required"},
		"an engine that can't be one": {docker(`{ "image": "i", "host": "nowhere" }`), "", "options.host: unable to parse docker host"},
		"a variable of the provider":  {docker(`{ "image": "i", "env": { "NSTANCE_INSTANCE_ID": "x" } }`), "", "env.NSTANCE_INSTANCE_ID: "},
		"a dangling reference": {strings.Replace(good, `"subnet_pool": "workers"`, `"subnet_pool": "wrkers"`, 1), "",
			`no such subnet pool "wrkers"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config.jsonc")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := server.Validate(t.Context(), server.Config{}, []string{file}, &out)
			if c.wrong == "" && (err != nil || !strings.Contains(out.String(), c.says)) {
				t.Errorf("said %q, %v", out.String(), err)
			}
			if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("want %q, have %v", c.wrong, err)
			}
		})
	}
}

// TestExamplesAreValid: the published examples are valid.
func TestExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.jsonc")
	more, _ := filepath.Glob("../../examples/dev/*.jsonc")
	if files = append(files, more...); err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := server.Validate(t.Context(), server.Config{}, []string{file}, io.Discard); err != nil {
			t.Error(err)
		}
	}
}
