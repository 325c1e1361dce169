//go:build integration

package terraform_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// bootPolicies check what a server runs, and its tags.
func bootPolicies() []policy {
	return []policy{
		{"a package is checked by its SHA-256", "shard", func(m made) error {
			return says(m, "--output \"$dir/nstance.tar.gz\" '"+url+"'\necho \""+sha256+"  $dir/nstance.tar.gz\" | sha256sum -c -\n")
		}, []mutation{
			{"shard/templates/server.sh.tftpl", `echo "${package.sha256}  $dir/nstance.tar.gz" | sha256sum -c -`, ""},
			{"shard/templates/server.sh.tftpl", `'${package.url}'`, `'https://example.com/latest'`},
		}},
		{"an image is run by its digest", "images", func(m made) error {
			return errors.Join(says(m, "docker pull --quiet ghcr.io/example/nstance-server"+digest+"\n"),
				says(m, "--volume /var/cache/nstance-server:/cache ghcr.io/example/nstance-server"+digest+" --cache-dir=/cache\n"))
		}, []mutation{
			{"shard/templates/server.sh.tftpl", "/cache ${image} --cache-dir", `/cache ${split("@", image)[0]} --cache-dir`},
		}},
		{"what a server says is in the console", "shard", func(m made) error {
			return errors.Join(says(m, "for unit in nstance-server nstance-asg; do\n"),
				says(m, `StandardOutput=journal+console\nStandardError=journal+console\n`),
				says(m, "console.conf\"\ndone\nsystemctl daemon-reload\n"))
		}, []mutation{
			{"shard/templates/server.sh.tftpl", `StandardOutput=journal+console\n`, ""},
			{"shard/templates/server.sh.tftpl", "for unit in nstance-server nstance-asg; do", "for unit in nstance-server; do"},
		}},
		{"the server knows its shard, its bucket and its region", "shard", func(m made) error {
			return says(m, "NSTANCE_SHARD=eu-central-1a\nNSTANCE_STORAGE_BUCKET=nstance-example\nAWS_REGION=eu-central-1\n")
		}, []mutation{{"shard/server.tf", "bucket         = var.bucket", "bucket = var.cluster_id"}}},
		{"no machine of a server is one that the leader may delete", "shard", tagged, []mutation{
			{"shard/server.tf", `merge(local.tags, { "nstance:role" = "server" })`, "local.moved"},
			{"shard/server.tf", "resource_type = \"network-interface\"\n    tags          = local.moved",
				"resource_type = \"network-interface\"\n    tags          = local.tags"},
			{"shard/server.tf", "resource_type = \"volume\"\n    tags          = local.tags", "resource_type = \"volume\""},
			{"shard/leader.tf", "merge(local.moved, {", "merge(local.tags, {"},
			{"shard/asg.tf", "propagate_at_launch = false", "propagate_at_launch = true"},
		}},
		{"nstance-asg may tell its own group how a server does", "shard", func(m made) error {
			return groupTag(m, "nstance:managed", "true")
		}, []mutation{{"shard/asg.tf", "for_each = local.moved", "for_each = local.tags"}}},
		{"everything says whose it is", "balancers", everythingTagged, []mutation{
			{"shard/security.tf", "tags        = merge(local.tags, { Name = \"${local.name}-agent\" })", ""},
			{"shard/main.tf", `"nstance:shard" = var.shard`, `"nstance:shard" = "another"`},
		}},
		{"a shard says where it is operated", "given", func(m made) error {
			outputs, _ := m.Outputs["shard"].Value.(map[string]any)
			if outputs["operator_addr"] != "10.0.0.10:8993" || outputs["registration_addr"] != "10.0.0.10:8992" {
				return fmt.Errorf("it says %v and %v", outputs["operator_addr"], outputs["registration_addr"])
			}
			return nil
		}, []mutation{
			{"shard/outputs.tf", "${local.ports.operator}", "${local.ports.agent}"},
			{"shard/outputs.tf", "${local.ports.registration}", "${local.ports.agent}"},
		}},
	}
}

// userData returns the script of a server's first boot.
func userData(m made) (string, error) {
	one, err := m.one("aws_launch_template")
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(one.text("user_data"))
	if len(text) > 16384 {
		err = fmt.Errorf("the user data has %d bytes, and EC2 takes 16384", len(text))
	}
	return string(text), err
}

// says reports whether user data contains a text.
func says(m made, text string) error {
	data, err := userData(m)
	if err == nil && !strings.Contains(data, text) {
		err = fmt.Errorf("%q is not in the user data:\n%s", text, data)
	}
	return err
}

// tagged: the interfaces that servers move have the tag that permits it; no server's machine has
// it, since a leader deletes machines that have it without a record.
func tagged(m made) error {
	template, err := m.one("aws_launch_template")
	if err != nil {
		return err
	}
	var types []string
	for n := range template.list("tag_specifications") {
		at := fmt.Sprintf("tag_specifications.%d.", n)
		kind := template.text(at + "resource_type")
		types = append(types, kind)
		managed := ""
		if kind == "network-interface" {
			managed = "true"
		}
		if err := owned(template, at+"tags", managed); err != nil {
			return err
		}
	}
	slices.Sort(types)
	if want := []string{"instance", "network-interface", "volume"}; !slices.Equal(types, want) {
		return fmt.Errorf("tags are of %v, want %v", types, want)
	}
	group, err := m.one("aws_autoscaling_group")
	for n := range group.list("tag") {
		if group.text(fmt.Sprintf("tag.%d.propagate_at_launch", n)) != "false" {
			return errors.New("the group's tags are its machines' too")
		}
	}
	interfaces := m.all("aws_network_interface")
	for _, one := range interfaces {
		if err := owned(one, "tags", "true"); err != nil {
			return err
		}
	}
	return err
}

// owned reports whether tags name the owner, and whether the leader may change the resource.
func owned(r resource, path, managed string) error {
	tags, _ := r.get(path).(map[string]any)
	for name, want := range map[string]string{"nstance:cluster-id": "example", "nstance:shard": "eu-central-1a", "nstance:managed": managed} {
		if got, _ := tags[name].(string); got != want {
			return fmt.Errorf("%s.%s: %s is %q, want %q", r.Address, path, name, got, want)
		}
	}
	return nil
}

// groupTag compares one tag of the group.
func groupTag(m made, name, want string) error {
	group, err := m.one("aws_autoscaling_group")
	for n := range group.list("tag") {
		if at := fmt.Sprintf("tag.%d.", n); group.text(at+"key") == name && group.text(at+"value") == want {
			return err
		}
	}
	return errors.Join(err, fmt.Errorf("the group has no tag %s = %s", name, want))
}

// everythingTagged: every resource that supports tags has the shard's. An object in the bucket
// needs none.
func everythingTagged(m made) error {
	for _, one := range m.resources {
		_, can := one.Values["tags"]
		if !can || one.Mode != "managed" || one.Type == "aws_s3_object" {
			continue
		}
		tags, _ := one.Values["tags"].(map[string]any)
		if tags["nstance:cluster-id"] != "example" || tags["nstance:shard"] != "eu-central-1a" {
			return fmt.Errorf("%s has the tags %v", one.Address, tags)
		}
	}
	return errors.Join(groupTag(m, "nstance:cluster-id", "example"), groupTag(m, "nstance:shard", "eu-central-1a"))
}
