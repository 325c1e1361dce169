//go:build integration

package terraform_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func networkPolicies() []policy {
	return []policy{
		{"a VPC is made", "new VPC", func(m made) error {
			vpc, err := m.one("aws_vpc")
			return errors.Join(err, vpc.want(map[string]string{
				"cidr_block": "10.0.0.0/16", "assign_generated_ipv6_cidr_block": "true", "enable_dns_hostnames": "true", "enable_dns_support": "true",
			}), allIn(m, vpc.text("id")))
		}, []mutation{
			{"network/main.tf", "enable_dns_support   = true", "enable_dns_support = false"},
			{"network/main.tf", "enable_dns_hostnames = true", "enable_dns_hostnames = false"},
		}},
		{"or one that exists is used as it is", "old VPC", func(m made) error {
			if made := append(m.all("aws_vpc"), m.all("aws_internet_gateway")...); len(made) > 0 {
				return fmt.Errorf("%s is made", made[0].Address)
			}
			return allIn(m, "vpc-0a1b2c3d")
		}, []mutation{{"network/main.tf", "count = local.new_vpc ? 1 : 0\n\n  cidr_block ", "count = 1\n\n  cidr_block "}}},
		{"and a subnet that exists keeps its routes", "old VPC", oldSubnet, []mutation{
			{"network/routes.tf", "subnet_id      = aws_subnet.new[each.key].id", `subnet_id = "subnet-0a1b2c3b"`},
			{"network/main.tf", "data.aws_subnet.existing[name].availability_zone", `"elsewhere"`},
		}},
		{"new subnets are tagged with their cluster", "new VPC", func(m made) error {
			for _, one := range m.all("aws_subnet") {
				if got := one.text("tags.nstance:cluster-id"); got != "example" {
					return fmt.Errorf("%s has nstance:cluster-id %q", one.Address, got)
				}
			}
			return nil
		}, []mutation{{"network/main.tf", `"nstance:cluster-id" = var.cluster_id })`, `})`}}},
		{"subnets are in their zones, and public ones alone give public addresses", "new VPC", subnetsByRole, []mutation{
			{"network/main.tf", "availability_zone               = each.value.zone", `availability_zone = "eu-central-1c"`},
			{"network/main.tf", `each.value.role == "public"`, `each.value.role != "isolated"`},
			{"network/main.tf", "assign_ipv6_address_on_creation = each.value.ipv6_number != null", ""},
		}},
		{"a subnet without IPv6 is put out as one", "public", func(m made) error {
			outputs, _ := m.Outputs["network"].Value.(map[string]any)
			subnets, _ := outputs["subnets"].(map[string]any)
			one, _ := subnets["servers"].(map[string]any)
			if cidr, has := one["ipv6_cidr"]; !has || cidr != nil {
				return fmt.Errorf("its range is %v", cidr)
			}
			return nil
		}, []mutation{{"network/main.tf", "s.ipv6_number == null ? null : aws_subnet", "s.ipv6_number == null ? \"\" : aws_subnet"}}},
		{"a public subnet goes out through the internet gateway", "new VPC", routed("public", "gateway_id", "igw-"), []mutation{
			{"network/routes.tf", "destination_cidr_block = \"0.0.0.0/0\"\n  gateway_id             = local.gateway_id",
				"destination_cidr_block = \"10.9.0.0/16\"\n  gateway_id             = local.gateway_id"},
			{"network/routes.tf", "destination_ipv6_cidr_block = \"::/0\"\n  gateway_id                  = local.gateway_id",
				"destination_ipv6_cidr_block = \"2001:db8::/32\"\n  gateway_id                  = local.gateway_id"},
		}},
		{"a private one through the NAT gateway of its zone", "new VPC", privateRoutes, []mutation{
			{"network/routes.tf", "subnet_id     = local.subnets[each.value].id", `subnet_id     = local.subnets["public-a"].id`},
			{"network/routes.tf", "\"0.0.0.0/0\"\n  nat_gateway_id ", "\"10.9.0.0/16\"\n  nat_gateway_id "},
			{"network/routes.tf", "egress_only_gateway_id      = one(aws_egress_only_internet_gateway.new[*].id)", "gateway_id = local.gateway_id"},
		}},
		{"or through one for all zones", "one NAT", func(m made) error {
			_, err := m.one("aws_nat_gateway")
			return errors.Join(err, routed("private", "nat_gateway_id", "nat-")(m))
		}, []mutation{{"network/routes.tf", `if var.nat == "per-zone" }`, "}"}}},
		{"an isolated one has no way out", "new VPC", isolatedRoutes, []mutation{
			{"network/routes.tf", "resource \"aws_route\" \"public\" {\n  for_each = local.by_role.public",
				"resource \"aws_route\" \"public\" {\n  for_each = merge(local.by_role.public, local.by_role.isolated)"},
		}},
		{"every new subnet reaches S3 through the gateway endpoint", "new VPC", s3Endpoint, []mutation{
			{"network/endpoints.tf", `vpc_endpoint_type = "Gateway"`, `vpc_endpoint_type = "Interface"`},
			{"network/endpoints.tf", "[for t in aws_route_table.new : t.id]", `[aws_route_table.new["public-a"].id]`},
		}},
		{"isolated subnets reach what servers need through endpoints", "new VPC", interfaceEndpoints, []mutation{
			{"network/endpoints.tf", `"ec2", "secretsmanager", "autoscaling"`, `"ec2", "autoscaling"`},
			{"network/endpoints.tf", "private_dns_enabled = true", "private_dns_enabled = false"},
			{"network/endpoints.tf", "from_port         = 443", "from_port = 80"},
			{"network/endpoints.tf", "local.subnets[names[0]].id]", "local.subnets[names[0]].id if false]"},
		}},
		{"endpoints in China have the names that they have there", "China", endpointNames(
			"cn.com.amazonaws.cn-north-1.autoscaling", "cn.com.amazonaws.cn-north-1.ec2",
			"com.amazonaws.cn-north-1.s3", "com.amazonaws.cn-north-1.secretsmanager",
		), []mutation{
			{"network/endpoints.tf", `["aws", "aws-us-gov"]`, `["aws", "aws-us-gov", "aws-cn"]`},
		}},
		{"and so in the sovereign cloud", "sovereign", endpointNames(
			"com.amazonaws.eusc-de-east-1.ec2", "com.amazonaws.eusc-de-east-1.s3", "eu.amazonaws.eusc-de-east-1.ecr.api",
		), []mutation{
			{"network/endpoints.tf", `["aws", "aws-us-gov"]`, `["aws", "aws-us-gov", "aws-eusc"]`},
		}},
		{"and in GovCloud, where no look is needed", "GovCloud", func(m made) error {
			for _, r := range m.resources {
				if r.Type == "aws_vpc_endpoint_service" {
					return fmt.Errorf("%s is read", r.Address)
				}
			}
			return endpointNames("com.amazonaws.us-gov-west-1.autoscaling", "com.amazonaws.us-gov-west-1.ec2",
				"com.amazonaws.us-gov-west-1.s3", "com.amazonaws.us-gov-west-1.secretsmanager")(m)
		}, []mutation{
			{"network/endpoints.tf", `["aws", "aws-us-gov"]`, `["aws"]`},
		}},
		{"a VPC has its further ranges, and they reach the endpoints", "ranges", furtherRanges, []mutation{
			{"network/main.tf", "toset(var.vpc_secondary_cidrs) : toset([])", "toset([]) : toset([])"},
			{"network/endpoints.tf", "{ for cidr in var.vpc_secondary_cidrs : cidr => cidr }", "{}"},
		}},
		{"without isolated subnets there is none of these", "public", func(m made) error {
			for _, one := range m.all("aws_vpc_endpoint") {
				if one.text("vpc_endpoint_type") != "Gateway" {
					return fmt.Errorf("%s is made", one.Address)
				}
			}
			return nil
		}, []mutation{{"network/endpoints.tf", `vpc_endpoint_type = "Gateway"`, `vpc_endpoint_type = "Interface"`}}},
	}
}

func furtherRanges(m made) error {
	vpc, err1 := m.one("aws_vpc")
	given, err2 := m.one("aws_vpc_ipv4_cidr_block_association")
	if err := errors.Join(err1, err2, given.want(map[string]string{"vpc_id": vpc.text("id"), "cidr_block": "100.64.0.0/16"})); err != nil {
		return err
	}
	var from []string
	for _, one := range m.all("aws_vpc_security_group_ingress_rule") {
		from = append(from, one.text("cidr_ipv4"))
	}
	slices.Sort(from)
	if want := []string{"10.0.0.0/16", "100.64.0.0/16"}; !slices.Equal(from, want) {
		return fmt.Errorf("the endpoints let in %v, want %v", from, want)
	}
	return nil
}

// allIn reports whether everything is in one VPC.
func allIn(m made, vpc string) error {
	for _, one := range m.resources {
		if id, has := one.Values["vpc_id"]; has && one.Mode == "managed" && id != vpc {
			return fmt.Errorf("%s is in %v, want %s", one.Address, id, vpc)
		}
	}
	return nil
}

// name returns a resource's for_each key.
func (r resource) key() string {
	_, after, _ := strings.Cut(r.Address, `["`)
	return strings.TrimSuffix(after, `"]`)
}

func oldSubnet(m made) error {
	outputs, _ := m.Outputs["network"].Value.(map[string]any)
	subnets, _ := outputs["subnets"].(map[string]any)
	old, _ := subnets["servers"].(map[string]any)
	if old["id"] != "subnet-0a1b2c3b" || old["zone"] != region+"b" {
		return fmt.Errorf("it is put out as %v", old)
	}
	for _, one := range m.all("aws_route_table_association") {
		if one.text("subnet_id") == "subnet-0a1b2c3b" {
			return fmt.Errorf("%s changes its routes", one.Address)
		}
	}
	return nil
}

func subnetsByRole(m made) error {
	subnets := m.all("aws_subnet")
	if want := newVPC()["subnets"].(inputs); len(subnets) != len(want) {
		return fmt.Errorf("there are %d subnets, want %d", len(subnets), len(want))
	}
	for _, one := range subnets {
		as := newVPC()["subnets"].(inputs)[one.key()].(inputs)
		if err := one.want(map[string]string{
			"availability_zone": as["zone"].(string), "cidr_block": as["cidr"].(string),
			"map_public_ip_on_launch":         fmt.Sprint(as["role"] == "public"),
			"assign_ipv6_address_on_creation": fmt.Sprint(as["ipv6_number"] != nil),
		}); err != nil {
			return err
		}
	}
	return nil
}

// ways are a subnet's default routes: for IPv4 and, with true, for IPv6.
func ways(m made, subnet resource) map[bool]resource {
	out := map[bool]resource{}
	for _, table := range m.all("aws_route_table_association") {
		if table.text("subnet_id") != subnet.text("id") {
			continue
		}
		for _, route := range m.all("aws_route") {
			if route.text("route_table_id") != table.text("route_table_id") {
				continue
			}
			if route.text("destination_cidr_block") == "0.0.0.0/0" {
				out[false] = route
			}
			if route.text("destination_ipv6_cidr_block") == "::/0" {
				out[true] = route
			}
		}
	}
	return out
}

// ofRole returns the subnets of a role.
func ofRole(m made, role string) []resource {
	return slices.DeleteFunc(m.all("aws_subnet"), func(r resource) bool { return !strings.HasPrefix(r.key(), role) })
}

// routed reports whether subnets of a role have a default route to a gateway, for IPv6 only if they
// are public.
func routed(role, attribute, prefix string) func(made) error {
	return func(m made) error {
		subnets := ofRole(m, role)
		for _, one := range subnets {
			all := ways(m, one)
			if !strings.HasPrefix(all[false].text(attribute), prefix) {
				return fmt.Errorf("%s has no way out by %s", one.Address, attribute)
			}
			if role == "public" && !strings.HasPrefix(all[true].text(attribute), prefix) {
				return fmt.Errorf("%s has no way out by %s with IPv6", one.Address, attribute)
			}
		}
		if len(subnets) == 0 {
			return fmt.Errorf("there is no %s subnet", role)
		}
		return nil
	}
}

// privateRoutes: outbound traffic goes through the gateway in a public subnet of the same zone,
// which has an address; IPv6 traffic is outbound only.
func privateRoutes(m made) error {
	zones := map[string]string{} // of the NAT gateways
	for _, gateway := range m.all("aws_nat_gateway") {
		for _, subnet := range ofRole(m, "public") {
			if subnet.text("id") == gateway.text("subnet_id") && gateway.text("allocation_id") != "" {
				zones[gateway.text("id")] = subnet.text("availability_zone")
			}
		}
	}
	if len(zones) != 2 {
		return fmt.Errorf("NAT gateways are in the public subnets of %v", slices.Collect(maps.Values(zones)))
	}
	for _, one := range ofRole(m, "private") {
		all := ways(m, one)
		if zones[all[false].text("nat_gateway_id")] != one.text("availability_zone") {
			return fmt.Errorf("%s goes out through %q", one.Address, all[false].text("nat_gateway_id"))
		}
		if one.text("ipv6_cidr_block") != "" && !strings.HasPrefix(all[true].text("egress_only_gateway_id"), "eigw-") {
			return fmt.Errorf("%s does not go out with IPv6, or is reached by it", one.Address)
		}
	}
	return nil
}

func isolatedRoutes(m made) error {
	for _, one := range ofRole(m, "isolated") {
		if all := ways(m, one); len(all) > 0 {
			return fmt.Errorf("%s has %v", one.Address, all)
		}
	}
	return nil
}

// endpointNames reports whether there are endpoints of exactly these services.
func endpointNames(want ...string) func(made) error {
	return func(m made) error {
		var got []string
		for _, one := range m.all("aws_vpc_endpoint") {
			got = append(got, one.text("service_name"))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("they are for %v, want %v", got, want)
		}
		return nil
	}
}

func s3Endpoint(m made) error {
	for _, endpoint := range m.all("aws_vpc_endpoint") {
		if endpoint.text("service_name") != "com.amazonaws.eu-central-1.s3" {
			continue
		}
		var tables []string
		for _, one := range m.all("aws_route_table_association") {
			tables = append(tables, one.text("route_table_id"))
		}
		got := endpoint.list("route_table_ids")
		slices.Sort(tables)
		slices.Sort(got)
		if !slices.Equal(got, tables) || len(tables) != len(m.all("aws_subnet")) {
			return fmt.Errorf("it is in %v of %v", got, tables)
		}
		return endpoint.want(map[string]string{"vpc_endpoint_type": "Gateway"})
	}
	return errors.New("there is none")
}

func interfaceEndpoints(m made) error {
	rule, err1 := m.one("aws_vpc_security_group_ingress_rule")
	group, err2 := m.one("aws_security_group")
	err3 := rule.want(map[string]string{
		"security_group_id": group.text("id"), "from_port": "443", "to_port": "443", "ip_protocol": "tcp", "cidr_ipv4": "10.0.0.0/16",
	})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var services []string
	for _, one := range m.all("aws_vpc_endpoint") {
		if one.text("vpc_endpoint_type") != "Interface" {
			continue
		}
		services = append(services, strings.TrimPrefix(one.text("service_name"), "com.amazonaws.eu-central-1."))
		if err := one.want(map[string]string{"private_dns_enabled": "true", "security_group_ids.0": group.text("id")}); err != nil {
			return err
		}
		if n := len(one.list("subnet_ids")); n != 1 { // two in one zone would be refused
			return fmt.Errorf("%s is in %d subnets, want one for each zone", one.Address, n)
		}
	}
	slices.Sort(services)
	if want := []string{"autoscaling", "ec2", "secretsmanager"}; !slices.Equal(services, want) {
		return fmt.Errorf("they are for %v, want %v", services, want)
	}
	return nil
}
