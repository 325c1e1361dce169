//go:build integration

package terraform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func configPolicies() []policy {
	return []policy{
		{"the shard's config is an object of the bucket", "shard", func(m made) error {
			one, err := m.one("aws_s3_object")
			return errors.Join(err, one.want(map[string]string{"bucket": "nstance-example", "key": "config/eu-central-1a.jsonc"}))
		}, []mutation{{"shard/config.tf", "config/${var.shard}.jsonc", "config/${var.cluster_id}.jsonc"}}},
		{"instances have IMDSv2, encrypted volumes and their own role", "shard", instances, []mutation{
			{"shard/templates.tf", "Encrypted           = true", "Encrypted = false"},
			{"shard/templates.tf", "Name = var.agent_profile_name", "Name = var.server_profile_name"},
			{"shard/templates.tf", "[aws_security_group.agent.id]", "[aws_security_group.server.id]"},
		}},
		{"instances have the default kernel, and the image of today to fall back to", "shard", defaultKernel, []mutation{
			{"shard/config.tf", "try(data.aws_ssm_parameter.image[arch].insecure_value, null)", "null"},
			{"shard/config.tf", "-${local.kernels[arch]}-${name}", "-kernel-6.1-${name}"},
			{"shard/config.tf", "-${local.kernels[arch]}-${name}", "-kernel-*-${name}"},
		}},
		{"an instance checks the agent's package by its SHA-256", "shard", func(m made) error {
			return bootstraps(m, "--output \"$dir/nstance.tar.gz\" '"+url+"'\necho \""+sha256+"  $dir/nstance.tar.gz\" | sha256sum -c -\n")
		}, []mutation{
			{"shard/templates/agent.sh.tftpl", `echo "${package.sha256}  $dir/nstance.tar.gz" | sha256sum -c -`, ""},
		}},
		{"or runs the agent's image by its digest", "images", func(m made) error {
			return bootstraps(m, "--volume /opt/nstance-agent:/opt/nstance-agent ghcr.io/example/nstance-agent"+digest+"\n")
		}, []mutation{{"shard/templates/agent.sh.tftpl", "/opt/nstance-agent ${image}\n", "/opt/nstance-agent ${split(\"@\", image)[0]}\n"}}},
		{"groups know the target groups of their load balancers", "balancers", targetGroups, []mutation{
			{"shard/config.tf", "target_group_arns = arns", "target_group_arns = []"},
		}},
	}
}

// configOf returns the shard's config.
func configOf(m made) (string, error) {
	one, err := m.one("aws_s3_object")
	return one.text("content"), err
}

// configTemplate has the tested fields of a template in the config.
type configTemplate struct {
	Args struct {
		IamInstanceProfile  struct{ Name string }
		SecurityGroupIds    []string //nolint:revive // AWS's spelling
		MetadataOptions     *struct{ HttpTokens string }
		BlockDeviceMappings []struct{ Ebs struct{ Encrypted bool } }
	}
	Userdata struct{ Content string }
}

// web returns the template "web" of the config.
func web(m made) (configTemplate, error) {
	text, err := configOf(m)
	if err != nil {
		return configTemplate{}, err
	}
	var config struct{ Templates map[string]configTemplate }
	err = json.Unmarshal([]byte(text), &config)
	return config.Templates["web"], err
}

// instances checks the module's settings of machines. IMDSv2 is the provider's default, which
// nothing here may disable.
func instances(m made) error {
	one, err := web(m)
	args := one.Args
	switch {
	case err != nil:
		return err
	case args.MetadataOptions != nil && args.MetadataOptions.HttpTokens != "required":
		return errors.New("IMDSv1 answers")
	case args.IamInstanceProfile.Name != "nstance-example-agent":
		return fmt.Errorf("the role is %q", args.IamInstanceProfile.Name)
	case !slices.Equal(args.SecurityGroupIds, []string{groupID(m, "agent")}):
		return fmt.Errorf("the security groups are %v", args.SecurityGroupIds)
	case len(args.BlockDeviceMappings) == 0 || !args.BlockDeviceMappings[0].Ebs.Encrypted:
		return errors.New("the volume is not encrypted")
	}
	return nil
}

// defaultKernel: images are found by the kernel of the image in the public parameter, which Amazon
// changes, and which is the fallback.
func defaultKernel(m made) error {
	text, err := configOf(m)
	var config struct {
		Images map[string]struct {
			Filters  []struct{ Values []string }
			Fallback string
		}
	}
	if err := errors.Join(err, json.Unmarshal([]byte(text), &config)); err != nil {
		return err
	}
	image := config.Images["al2023_arm64"]
	if len(image.Filters) != 1 || !slices.Equal(image.Filters[0].Values, []string{"al2023-ami-2023.*-kernel-6.12-arm64"}) {
		return fmt.Errorf("images are found by %v", image.Filters)
	}
	for _, r := range m.resources {
		if r.Type == "aws_ssm_parameter" && r.Name == "image" && strings.HasSuffix(r.text("name"), "/al2023-ami-kernel-default-arm64") &&
			r.text("insecure_value") == image.Fallback {
			return nil
		}
	}
	return fmt.Errorf("the fallback is %q", image.Fallback)
}

// bootstraps reports whether an instance's user data contains a text.
func bootstraps(m made, text string) error {
	one, err := web(m)
	if err == nil && !strings.Contains(one.Userdata.Content, text) {
		err = fmt.Errorf("%q is not in the user data:\n%s", text, one.Userdata.Content)
	}
	return err
}

func targetGroups(m made) error {
	text, err1 := configOf(m)
	targets, err2 := m.one("aws_lb_target_group")
	var config struct {
		Balancers map[string]struct {
			ARNs []string `json:"target_group_arns"`
		} `json:"load_balancers"`
	}
	if err := errors.Join(err1, err2, json.Unmarshal([]byte(text), &config)); err != nil {
		return err
	}
	if got := config.Balancers["www"].ARNs; !slices.Equal(got, []string{targets.text("arn")}) {
		return fmt.Errorf("www has %v, want %s", got, targets.text("arn"))
	}
	return nil
}

// accepted has nstance-server validate the config.
func built(t *testing.T) string {
	t.Helper()
	server := filepath.Join(t.TempDir(), "nstance-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", server, "./cmd/nstance-server")
	build.Dir, build.Env = here.repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nstance-server: %v\n%s", err, out)
	}
	return server
}

// accepted has a server judge the config.
func accepted(t *testing.T, server string, m made) {
	t.Helper()
	text, err := configOf(m)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.jsonc")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), server, "--validate", file)
	cmd.Env = clean()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("nstance-server does not accept the config: %v\n%s\n%s", err, out, text)
	}
}
