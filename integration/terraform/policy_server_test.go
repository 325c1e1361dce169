//go:build integration

package terraform_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func serverPolicies() []policy {
	return slices.Concat(machinePolicies(), groupPolicies(), bootPolicies())
}

// machinePolicies check a server's machine.
func machinePolicies() []policy {
	return []policy{
		{"servers' metadata wants a session (IMDSv2)", "shard", template(map[string]string{
			"metadata_options.0.http_tokens": "required", "metadata_options.0.http_endpoint": "enabled",
			"metadata_options.0.http_put_response_hop_limit": "1",
		}), []mutation{
			{"shard/server.tf", `http_tokens   = "required"`, `http_tokens = "optional"`},
			{"shard/server.tf", `http_tokens   = "required"`, ``},
			{"shard/server.tf", "http_put_response_hop_limit = 1", "http_put_response_hop_limit = 2"},
			{"shard/server.tf", "http_put_response_hop_limit = 1", ""},
		}},
		{"and answers the machine itself alone, where servers are containers too", "images", hostsNetwork, []mutation{
			{"shard/server.tf", "http_put_response_hop_limit = 1", "http_put_response_hop_limit = local.containers ? 2 : 1"},
			{"shard/templates/server.sh.tftpl", "--name nstance-server --network host", "--name nstance-server"},
			{"shard/templates/server.sh.tftpl", "--name nstance-asg --network host", "--name nstance-asg"},
		}},
		{"a server is a t4g.micro", "shard", template(map[string]string{"instance_type": "t4g.micro"}), []mutation{
			{"shard/variables_machines.tf", `default     = "t4g.micro"`, `default     = "t4g.nano"`},
			{"shard/server.tf", "instance_type = var.server_instance_type", `instance_type = "t4g.small"`},
		}},
		{"its image is the newest of Amazon Linux for its architecture", "shard", newestImage, []mutation{
			{"shard/main.tf", `var.server_arch == "amd64" ? "x86_64" : "arm64"`, `var.server_arch == "arm64" ? "x86_64" : "arm64"`},
		}},
		{"its volume is encrypted", "shard", template(map[string]string{
			"block_device_mappings.0.ebs.0.encrypted": "true", "block_device_mappings.0.ebs.0.delete_on_termination": "true",
		}), []mutation{
			{"shard/server.tf", "encrypted             = true", ""},
			{"shard/server.tf", "encrypted             = true", "encrypted = false"},
		}},
		{"its CPU credits are standard", "shard", template(map[string]string{"credit_specification.0.cpu_credits": "standard"}), []mutation{
			{"shard/server.tf", `? ["standard"] : []`, `? ["unlimited"] : []`},
			{"shard/server.tf", `? ["standard"] : []`, `? [] : []`},
		}},
		{"it has the servers' role", "shard", template(map[string]string{"iam_instance_profile.0.name": "nstance-example-server"}), []mutation{
			{"shard/server.tf", "name = var.server_profile_name", "name = var.agent_profile_name"},
		}},
	}
}

// groupPolicies check the servers' Auto Scaling group.
func groupPolicies() []policy {
	return []policy{
		{"the group wants one server, and two for a moment", "shard", group(map[string]string{
			"desired_capacity": "1", "min_size": "1", "max_size": "2",
		}), []mutation{
			{"shard/asg.tf", "local.servers + 1", "local.servers"},
			{"shard/asg.tf", "max_size            = local.servers + 1", "max_size = 3"},
			{"shard/asg.tf", "desired_capacity    = local.servers", "desired_capacity = 2"},
			{"shard/asg.tf", "min_size            = local.servers", "min_size = 0"},
		}},
		{"the next server is ready before the one before goes", "shard", group(map[string]string{
			"instance_maintenance_policy.0.min_healthy_percentage": "100", "instance_maintenance_policy.0.max_healthy_percentage": "200",
		}), []mutation{
			{"shard/asg.tf", "instance_maintenance_policy {\n    min_healthy_percentage = 100\n    max_healthy_percentage = 200",
				"instance_maintenance_policy {\n    min_healthy_percentage = 0\n    max_healthy_percentage = 100"},
		}},
		{"another template replaces the servers at once, one by one", "shard", group(map[string]string{
			"instance_refresh.0.strategy": "Rolling", "instance_refresh.0.preferences.0.min_healthy_percentage": "100",
			"instance_refresh.0.preferences.0.max_healthy_percentage": "200",
		}), []mutation{{"shard/asg.tf", "preferences {\n      min_healthy_percentage = 100", "preferences {\n      min_healthy_percentage = 0"}}},
		{"a server counts once it is fit to lead", "shard", hooked("600"), []mutation{
			{"shard/asg.tf", `default_result       = "ABANDON"`, `default_result = "CONTINUE"`},
			{"shard/asg.tf", `autoscaling:EC2_INSTANCE_LAUNCHING`, `autoscaling:EC2_INSTANCE_TERMINATING`},
			{"shard/asg.tf", "name                 = local.hook", `name = "other"`},
			{"shard/asg.tf", "heartbeat_timeout    = local.boot_timeout_seconds", "heartbeat_timeout = 60"},
			{"shard/templates/server.sh.tftpl", "NSTANCE_ASG_HOOK=${hook}", "NSTANCE_ASG_HOOK=other"},
			{"shard/templates/server.sh.tftpl", "NSTANCE_ASG=${group}", ""},
			{"shard/templates/server.sh.tftpl", "enable --now nstance-server.service nstance-asg.service", "enable --now nstance-server.service"},
		}},
		{"nstance-asg has the same of a container, which takes longer to be there", "images", hooked("1200"), []mutation{
			{"shard/asg.tf", "local.containers ? 1200 : 600", "600"},
			{"shard/templates/server.sh.tftpl", "  --asg=${group} --hook=${hook} --health-url=", "  --asg=${group} --hook=${group} --health-url="},
			{"shard/templates/server.sh.tftpl", ":/state ${asg_image} \\", ":/state ${image} \\"},
		}},
		{"and remembers what it saw from one start to the next", "images", remembers, []mutation{
			{"shard/templates/server.sh.tftpl", "RuntimeDirectoryPreserve=restart\n", ""},
			{"shard/templates/server.sh.tftpl", "--volume /run/nstance-asg:/state", ""},
			{"shard/templates/server.sh.tftpl", " --state=/state/state", ""},
			{"shard/templates/server.sh.tftpl", "ExecStartPre=/bin/chown -R 65532:65532 /run/nstance-asg\n", ""},
		}},
		{"only EC2 and nstance-asg say that a server is ill", "shard", group(map[string]string{"health_check_type": "EC2"}), []mutation{
			{"shard/asg.tf", `health_check_type         = "EC2"`, `health_check_type = "ELB"`},
		}},
		{"the group names its template's version by number", "shard", numbered, []mutation{
			{"shard/asg.tf", "version = aws_launch_template.server.latest_version", `version = "$Latest"`},
		}},
	}
}

// hostsNetwork: the metadata service answers only the machine, whose network the containers use.
func hostsNetwork(m made) error {
	return errors.Join(
		template(map[string]string{"metadata_options.0.http_tokens": "required", "metadata_options.0.http_put_response_hop_limit": "1"})(m),
		says(m, " --name nstance-server --network host "), says(m, " --name nstance-asg --network host "),
	)
}

// template reports whether the launch template has these values.
func template(values map[string]string) func(made) error {
	return func(m made) error {
		one, err := m.one("aws_launch_template")
		return errors.Join(err, one.want(values))
	}
}

func group(values map[string]string) func(made) error {
	return func(m made) error {
		one, err := m.one("aws_autoscaling_group")
		return errors.Join(err, one.want(values))
	}
}

func newestImage(m made) error {
	one, err := m.one("aws_launch_template")
	if err != nil {
		return err
	}
	for _, r := range m.resources {
		if r.Type != "aws_ssm_parameter" {
			continue
		}
		if !strings.HasSuffix(r.text("name"), "-arm64") || one.text("image_id") != r.text("insecure_value") {
			return fmt.Errorf("image %s of %s", one.text("image_id"), r.text("name"))
		}
	}
	return nil
}

// hooked: the group has a hook, which waits as long as a boot may take, and nstance-asg, which
// completes it, has both names.
func hooked(seconds string) func(made) error {
	return func(m made) error {
		one, err := m.one("aws_autoscaling_group")
		if err != nil {
			return err
		}
		const hook = "initial_lifecycle_hook.0."
		err = one.want(map[string]string{
			hook + "lifecycle_transition": "autoscaling:EC2_INSTANCE_LAUNCHING", hook + "default_result": "ABANDON",
			hook + "heartbeat_timeout": seconds,
		})
		told := "\nNSTANCE_ASG=" + one.text("name") + "\nNSTANCE_ASG_HOOK=" + one.text(hook+"name") + "\n"
		if data, _ := userData(m); strings.Contains(data, "docker run") {
			told = "nstance-asg" + digest + " \\\n  --asg=" + one.text("name") + " --hook=" + one.text(hook+"name") + " "
		}
		return errors.Join(err, says(m, told), says(m, "systemctl enable --now nstance-server.service nstance-asg.service\n"))
	}
}

// remembers: a start of the server also starts nstance-asg, whose user can write its state, which
// survives restarts.
func remembers(m made) error {
	return errors.Join(
		says(m, "\nRuntimeDirectory=nstance-asg\nRuntimeDirectoryPreserve=restart\nExecStartPre=/bin/chown -R 65532:65532 /run/nstance-asg\n"),
		says(m, " --user 65532:65532 --volume /run/nstance-asg:/state ghcr.io/example/nstance-asg@"), says(m, " --state=/state/state\n"),
	)
}

func numbered(m made) error {
	template, err1 := m.one("aws_launch_template")
	group, err2 := m.one("aws_autoscaling_group")
	return errors.Join(err1, err2, group.want(map[string]string{
		"launch_template.0.id": template.text("id"), "launch_template.0.version": template.text("latest_version"),
	}))
}
