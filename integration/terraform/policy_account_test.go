//go:build integration

package terraform_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func accountPolicies() []policy {
	return []policy{
		{"servers and instances have a role each, which EC2 alone takes on", "account", twoRoles, []mutation{
			{"account/main.tf", `Service = local.facts.partition`, `AWS = local.facts.partition`},
			{"account/main.tf", `local.facts.partition == "aws-cn"`, `local.facts.partition != "aws-cn"`},
			{"account/main.tf", `name                 = "${local.prefix}-${each.key}"`, `name = local.prefix`},
		}},
		{"each role has an instance profile of its own", "account", twoProfiles, []mutation{
			{"account/main.tf", "role = aws_iam_role.role[each.key].name", `role = aws_iam_role.role["server"].name`},
		}},
		{"rights can be added to each role by its name", "account", func(m made) error {
			outputs, _ := m.Outputs["account"].Value.(map[string]any)
			if outputs["server_role_name"] != "nstance-example-server" || outputs["agent_role_name"] != "nstance-example-agent" {
				return fmt.Errorf("they are %v and %v", outputs["server_role_name"], outputs["agent_role_name"])
			}
			return nil
		}, []mutation{
			{"account/outputs.tf", `aws_iam_role.role["server"].name`, `aws_iam_role.role["server"].arn`},
			{"account/outputs.tf", `aws_iam_role.role["agent"].name`, `aws_iam_role.role["server"].name`},
		}},
		{"a role may do what is named, and only read what is public", "account", leastPrivilege, []mutation{
			{"account/policies/server.json", `"ec2:DescribeSubnets"`, `"ec2:*"`},
			{"account/policies/server.json", `"ec2:DescribeSubnets"`, `"ec2:DeleteSubnet"`},
		}},
		{"servers end and change machines of their cluster only", "account", ownMachines, []mutation{
			{"account/policies/server.json", `"ec2:TerminateInstances"`, `"ec2:StopInstances", "ec2:TerminateInstances2"`},
		}},
		{"they launch with what is the cluster's", "account", ownLaunches, []mutation{
			{"account/policies/server.json", `:${region}::image/*"`, `:${region}::image/*", "arn:${partition}:ec2:*:*:subnet/*"`},
			{"account/policies/server.json", `:${region}::image/*"`, `:${region}::image/*", "arn:${partition}:ec2:*::snapshot/*"`},
		}},
		{"from snapshots only where that is wanted", "account", launchesFromSnapshots(false), []mutation{
			{"account/main.tf", `if var.allow_snapshots }`, `}`},
		}},
		{"and then from the cluster's", "more rights", func(m made) error {
			return errors.Join(ownLaunches(m), launchesFromSnapshots(true)(m))
		}, []mutation{
			{"account/main.tf", `if var.allow_snapshots }`, `if !var.allow_snapshots }`},
			{"account/policies/snapshots.json", "nstance:cluster-id", "nstance:other-id"},
		}},
		{"servers reach the cluster's bucket and no other", "account",
			onlyOn("s3:", "arn:aws:s3:::nstance-example", "arn:aws:s3:::nstance-example/*"), []mutation{
				{"account/policies/server.json", `"arn:${partition}:s3:::${bucket}/*"`, `"arn:${partition}:s3:::*/*"`},
			}},
		{"servers read the key and no other secret", "account", onlyOn("secretsmanager:", keyARN), []mutation{
			{"account/policies/key.json", "${key_arn}", "arn:${partition}:secretsmanager:${region}:${account}:secret:*"},
		}},
		{"servers give instances their role and no other", "account",
			onlyOn("iam:PassRole", "arn:aws:iam::111122223333:role/nstance-example-agent"), []mutation{
				{"account/policies/server.json", `"${agent_role_arn}"`, `"arn:${partition}:iam::${account}:role/*"`},
			}},
		{"they use a KMS key where there is one, and that one", "more rights", onlyOn("kms:", kmsARN), []mutation{
			{"account/main.tf", `var.kms_key_arn == null ? "" : var.kms_key_arn`, `replace(var.kms_key_arn, "0f1e2d3c", "*")`},
			{"account/main.tf", `if var.kms_key_arn != null`, `if var.kms_key_arn == null`},
		}},
		{"they keep secrets under their prefix, where they keep any, in the region that was chosen", "more rights", func(m made) error {
			const secret = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:nstance/example/*"
			return errors.Join(onlyOn("secretsmanager:CreateSecret", secret)(m),
				onlyOn("ssm:PutParameter", "arn:aws:ssm:eu-west-1:111122223333:parameter/nstance/example/*")(m))
		}, []mutation{
			{"account/policies/secrets-manager.json", "secret:${secret_prefix}*", "secret:*"},
			{"account/policies/parameter-store.json", "parameter/${secret_prefix}*", "parameter/*"},
			{"account/main.tf", "coalesce(var.secrets_region, data", "coalesce(data"},
		}},
		{"instances may do nothing", "account", func(m made) error {
			rights, err := rightsOf(m, "agent")
			if len(rights) > 0 {
				return fmt.Errorf("they may %v", rights[0].Action)
			}
			return err
		}, []mutation{
			{"account/policies/agent.json", `"Statement": []`, `"Statement": [{ "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*" }]`},
		}},
	}
}

func twoRoles(m made) error {
	var names []string
	for _, role := range m.all("aws_iam_role") {
		trust, err := statements(role.text("assume_role_policy"))
		if err != nil {
			return err
		}
		if len(trust) != 1 || string(trust[0].Principal) != `{"Service":["ec2.amazonaws.com"]}` {
			return fmt.Errorf("%s is for %s", role.Address, role.text("assume_role_policy"))
		}
		names = append(names, role.text("name"))
	}
	slices.Sort(names)
	if want := []string{"nstance-example-agent", "nstance-example-server"}; !slices.Equal(names, want) {
		return fmt.Errorf("the roles are %v, want %v", names, want)
	}
	return nil
}

func twoProfiles(m made) error {
	profiles := m.all("aws_iam_instance_profile")
	for _, one := range profiles {
		if one.text("name") != one.text("role") {
			return fmt.Errorf("%s has the role %s", one.text("name"), one.text("role"))
		}
	}
	if len(profiles) != 2 {
		return fmt.Errorf("there are %d profiles, want 2", len(profiles))
	}
	return nil
}

// rightsOf returns the statements of a role's policies.
func rightsOf(m made, role string) ([]statement, error) {
	var out []statement
	for _, policy := range m.all("aws_iam_role_policy") {
		if policy.text("role") != "nstance-example-"+role {
			continue
		}
		some, err := statements(policy.text("policy"))
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	for _, one := range out {
		if one.Effect != "Allow" || len(one.Action) == 0 || len(one.Resource) == 0 {
			return nil, fmt.Errorf("%s: want actions that are allowed, and resources", one.Sid)
		}
	}
	return out, nil
}

// servers returns the statements of the servers' role, which must exist.
func servers(m made) ([]statement, error) {
	rights, err := rightsOf(m, "server")
	if err == nil && len(rights) == 0 {
		err = errors.New("servers may do nothing")
	}
	return rights, err
}

func leastPrivilege(m made) error {
	rights, err := servers(m)
	for _, one := range rights {
		for _, action := range one.Action {
			_, name, _ := strings.Cut(action, ":")
			reads := strings.HasPrefix(name, "Describe") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Get")
			if strings.Contains(action, "*") || slices.Contains(one.Resource, "*") && !reads {
				return fmt.Errorf("%s: %s on %v", one.Sid, action, one.Resource)
			}
		}
	}
	return err
}

// ownMachines: every action that changes or creates a machine or an interface has a condition on
// its tags.
func ownMachines(m made) error {
	rights, err := servers(m)
	var ends bool
	for _, one := range rights {
		for _, action := range one.Action {
			service, name, _ := strings.Cut(action, ":")
			if service != "ec2" || strings.HasPrefix(name, "Describe") || name == "RunInstances" || name == "CreateTags" {
				continue
			}
			ends = ends || name == "TerminateInstances"
			if !strings.Contains(string(one.Condition), `"aws:ResourceTag/nstance:cluster-id":"example"`) &&
				!strings.Contains(string(one.Condition), `"aws:ResourceTag/nstance:cluster-id": "example"`) {
				return fmt.Errorf("%s: %s without a condition on the cluster", one.Sid, action)
			}
		}
	}
	if !ends && err == nil {
		err = errors.New("servers can't end instances")
	}
	return err
}

// ownLaunches: every resource with tags that a launch uses has a condition on the cluster.
func ownLaunches(m made) error {
	rights, err := servers(m)
	seen := map[string]bool{}
	for _, one := range rights {
		if !slices.Contains(one.Action, "ec2:RunInstances") {
			continue
		}
		for _, arn := range one.Resource {
			for _, kind := range []string{"subnet", "security-group", "launch-template", "placement-group", "capacity-reservation", "snapshot"} {
				if !strings.Contains(arn, ":"+kind+"/") {
					continue
				}
				seen[kind] = true
				if !strings.Contains(strings.ReplaceAll(string(one.Condition), " ", ""), `"aws:ResourceTag/nstance:cluster-id":"example"`) {
					return fmt.Errorf("%s: launches with %s without a condition on the cluster", one.Sid, arn)
				}
			}
		}
	}
	if !seen["subnet"] && err == nil {
		err = errors.New("servers can't launch into a subnet")
	}
	return err
}

// launchesFromSnapshots reports whether volumes can be created from snapshots.
func launchesFromSnapshots(want bool) func(made) error {
	return func(m made) error {
		rights, err := servers(m)
		got := slices.ContainsFunc(rights, func(s statement) bool {
			return slices.ContainsFunc(s.Resource, func(arn string) bool { return strings.Contains(arn, ":snapshot/") })
		})
		if got != want && err == nil {
			err = fmt.Errorf("launches from snapshots: %v, want %v", got, want)
		}
		return err
	}
}

// onlyOn reports whether servers have the actions with this prefix on exactly these resources.
func onlyOn(action string, resources ...string) func(made) error {
	return func(m made) error {
		rights, err := servers(m)
		var some bool
		for _, one := range rights {
			if !slices.ContainsFunc(one.Action, func(a string) bool { return strings.HasPrefix(a, action) }) {
				continue
			}
			some = true
			for _, got := range one.Resource {
				if !slices.Contains(resources, got) {
					return fmt.Errorf("%s: on %s, want %v", one.Sid, got, resources)
				}
			}
		}
		if !some && err == nil {
			err = fmt.Errorf("servers may not %s", action)
		}
		return err
	}
}
