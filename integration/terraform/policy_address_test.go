//go:build integration

package terraform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func addressPolicies() []policy {
	return slices.Concat(interfacePolicies(), standbyPolicies(), doorPolicies())
}

// interfacePolicies check a single server, whose address is that of an interface.
func interfacePolicies() []policy {
	return []policy{
		{"the leader has an interface with a reserved address", "given", func(m made) error {
			eni, err := m.one("aws_network_interface")
			return errors.Join(err, eni.want(map[string]string{"subnet_id": "subnet-0a1b2c3d", "private_ips.0": "10.0.0.10"}),
				network(m, map[string]string{"ipv4": "10.0.0.10", "ipv6": "", "interface_id": eni.text("id")}))
		}, []mutation{
			{"shard/leader.tf", "private_ips        = var.leader_ipv4_address == null ? null : [var.leader_ipv4_address]", ""},
			{"shard/leader.tf", `interface_id = local.with_interface ? aws_network_interface.leader[0].id : "primary"`, `interface_id = "primary"`},
		}},
		{"nothing but a server attaches it", "shard", unattached, []mutation{
			{"shard/server.tf", "device_index                = 0", "network_interface_id = aws_network_interface.leader[0].id"},
			{"shard/leader.tf", "subnet_id          = var.subnet.id", `subnet_id = var.subnet.id
  attachment {
    instance     = "i-0a1b2c3d"
    device_index = 1
  }`},
		}},
		{"its id, ARN and MAC address are in the user data", "shard", func(m made) error {
			eni, err := m.one("aws_network_interface")
			return errors.Join(err, says(m, "# "+eni.text("id")+" "+eni.text("arn")+"\n[Match]\nMACAddress="+eni.text("mac_address")+"\n"))
		}, []mutation{
			{"shard/templates/server.sh.tftpl", "${interface_id} ${interface_arn}", "${interface_id}"},
			{"shard/templates/server.sh.tftpl", "MACAddress=${interface_mac}", "Name=eth1"},
		}},
		{"replies leave by the interface that was asked", "given", func(m made) error {
			return errors.Join(says(m, "\n[Address]\nAddress=10.0.0.10/32\n"), says(m, "\n[RoutingPolicyRule]\nFrom=10.0.0.10\nTable=8990\n"),
				says(m, "\n[Route]\nGateway=10.0.0.1\nGatewayOnLink=yes\nTable=8990\n"))
		}, []mutation{
			{"shard/templates/server.sh.tftpl", "From=${ipv4}\nTable=8990", "From=${ipv4}\nTable=254"},
			{"shard/server.tf", "cidrhost(var.subnet.cidr, 1)", "cidrhost(var.subnet.cidr, 2)"},
		}},
		{"no number of a table or a rule is one of those of Amazon's scripts", "dual", ownNumbers, []mutation{
			{"shard/templates/server.sh.tftpl", "From=${ipv4}\nTable=8990\nPriority=8990", "From=${ipv4}\nTable=8990\nPriority=10005"},
			{"shard/templates/server.sh.tftpl", "UseDNS=no\nRouteTable=8990", "UseDNS=no\nRouteTable=10005"},
		}},
		{"the address may be of both families", "dual", func(m made) error {
			eni, err := m.one("aws_network_interface")
			return errors.Join(err, eni.want(map[string]string{"ipv6_address_count": "1"}), network(m, map[string]string{
				"ipv4": eni.text("private_ips.0"), "ipv6": eni.text("ipv6_addresses.0"), "interface_id": eni.text("id"),
			}), template(map[string]string{"network_interfaces.0.ipv6_address_count": "1"})(m))
		}, []mutation{
			{"shard/leader.tf", "var.enable_leader_ipv6 && var.leader_ipv6_address == null ? 1 : null", "2"},
			{"shard/server.tf", "ipv6_address_count          = var.enable_leader_ipv6 ? 1 : null", ""},
			{"shard/leader.tf", "ipv6         = local.leader_ipv6\n", ""},
		}},
		{"or of IPv6 alone", "IPv6", func(m made) error {
			eni, err := m.one("aws_network_interface")
			return errors.Join(err, network(m, map[string]string{"ipv4": "", "ipv6": eni.text("ipv6_addresses.0"), "interface_id": eni.text("id")}))
		}, []mutation{
			{"shard/leader.tf", "!var.enable_leader_ipv4 ? null : (", "var.enable_leader_ipv6 && var.enable_leader_ipv4 ? null : ("},
		}},
	}
}

// standbyPolicies check several servers, whose address is an additional one of the leader.
func standbyPolicies() []policy {
	return []policy{
		{"with standbys there is no interface: the address is a second one of the leader", "standbys", standby, []mutation{
			{"shard/leader.tf", "count = local.with_interface ? 1 : 0", "count = 1"},
			{"shard/leader.tf", "aws_network_interface.leader[0].id : \"primary\"", "aws_network_interface.leader[0].id : \"eni-0a1b2c3d\""},
			{"shard/leader.tf", "for_each = local.reserved", "for_each = {}"},
			{"shard/leader.tf", `"${var.leader_ipv6_address}/128"`, `"${var.leader_ipv6_address}/64"`},
			{"shard/leader.tf", `reservation_type = "explicit"`, `reservation_type = "prefix"`},
		}},
		{"and there is one server more for each", "standbys", group(map[string]string{"desired_capacity": "3", "min_size": "3", "max_size": "4"}),
			[]mutation{{"shard/asg.tf", "servers = 1 + var.standbys", "servers = 1"}}},
	}
}

// doorPolicies check who has network access.
func doorPolicies() []policy {
	return []policy{
		{"servers are reached at their ports by their own only", "shard", closed, []mutation{
			{"shard/security.tf", "operator = 8993, agent = 8994", "operator = 8993, agent = 22"},
			{"shard/security.tf", "servers-election    = { group = aws_security_group.server.id",
				"servers-election = { group = aws_security_group.agent.id"},
			{"shard/variables.tf", "operator ports.\"\n  default     = []", "operator ports.\"\n  default     = [\"0.0.0.0/0\"]"},
			{"shard/server.tf", "security_groups             = [aws_security_group.server.id]", "security_groups = [aws_security_group.agent.id]"},
			{"shard/leader.tf", "security_groups    = [aws_security_group.server.id]", "security_groups = [aws_security_group.agent.id]"},
		}},
		{"operators reach what they are let to", "rich", operatorsReach, []mutation{
			{"shard/security.tf", "operator = local.ports.operator }", "operator = 22 }"},
			{"shard/security.tf", `"operators-${name}-${service}" => { group = id, port = port }`,
				`"operators-${name}-${service}" => { group = aws_security_group.agent.id, port = port }`},
		}},
		{"a load balancer passes on to what registers with it", "balancers", balanced, []mutation{
			{"shard/balancers.tf", `target_type          = "instance"`, `target_type = "ip"`},
			{"shard/balancers.tf", "preserve_client_ip   = each.value.preserve_client_ip", ""},
			{"shard/balancers.tf", `load_balancer_type = "network"`, `load_balancer_type = "application"`},
			{"shard/balancers.tf", "port                 = coalesce(each.value.target_port, each.value.port)", "port = each.value.port"},
			{"shard/balancers.tf", "tags                 = merge(local.moved, {", "tags = merge(local.tags, {"},
			{"shard/balancers.tf", "referenced_security_group_id = aws_security_group.balancer[each.value.name].id", `cidr_ipv4 = "0.0.0.0/0"`},
		}},
		{"without load balancers there is none", "shard", func(m made) error {
			if made := slices.Concat(m.all("aws_lb"), m.all("aws_lb_target_group"), m.all("aws_lb_listener")); len(made) > 0 {
				return fmt.Errorf("%s is made", made[0].Address)
			}
			return nil
		}, []mutation{{"shard/balancers.tf", "balancers = { for name, lb in var.load_balancers : name => lb if lb.port != null }",
			`balancers = { own = {
				port = 1, target_port = 1, protocol = "TCP", internal = true, subnet_ids = [], cidrs = [],
				health_port = null, health_path = null, drain_seconds = 1, preserve_client_ip = true
			} }`}}},
	}
}

// network compares the leader's network in the config; an empty text is a missing field.
func network(m made, want map[string]string) error {
	config, err := configOf(m)
	if err != nil {
		return err
	}
	var shard struct {
		Server struct {
			Network map[string]string `json:"leader_network"`
		}
	}
	if err := json.Unmarshal([]byte(config), &shard); err != nil {
		return err
	}
	for field, value := range want {
		if got := shard.Server.Network[field]; got != value {
			return fmt.Errorf("leader_network.%s is %q, want %q", field, got, value)
		}
	}
	return nil
}

// ownNumbers: amazon-ec2-net-utils numbers the tables and rules of each interface from 10000, by
// its device index and network card, and removes others there. 253 to 255 are the kernel's.
func ownNumbers(m made) error {
	data, err := userData(m)
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`(?m)^(Table|RouteTable|Priority)=(\d+)$`).FindAllStringSubmatch(data, -1)
	for _, one := range found {
		if n, err := strconv.Atoi(one[2]); err != nil || n < 256 || n >= 10000 {
			return fmt.Errorf("%s: want 256 to 9999", one[0])
		}
	}
	if len(found) != 8 {
		return fmt.Errorf("there are %d numbers, want 8:\n%s", len(found), data)
	}
	return nil
}

func unattached(m made) error {
	eni, err1 := m.one("aws_network_interface")
	template, err2 := m.one("aws_launch_template")
	group, err3 := m.one("aws_autoscaling_group")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if len(eni.list("attachment")) > 0 || len(m.all("aws_network_interface_attachment")) > 0 {
		return errors.New("Terraform attaches it")
	}
	for n := range template.list("network_interfaces") {
		if id := template.text(fmt.Sprintf("network_interfaces.%d.network_interface_id", n)); id != "" {
			return fmt.Errorf("the launch template attaches %q", id)
		}
	}
	text, err := json.Marshal(group.Values)
	if strings.Contains(string(text), eni.text("id")) {
		err = errors.New("the group knows it")
	}
	return err
}

func standby(m made) error {
	if made := m.all("aws_network_interface"); len(made) > 0 {
		return fmt.Errorf("%s is made", made[0].Address)
	}
	var reserved []string
	for _, one := range m.all("aws_ec2_subnet_cidr_reservation") {
		if err := one.want(map[string]string{"subnet_id": "subnet-0a1b2c3d", "reservation_type": "explicit"}); err != nil {
			return err
		}
		reserved = append(reserved, one.text("cidr_block"))
	}
	slices.Sort(reserved)
	if want := []string{"10.0.0.10/32", "2001:db8::10/128"}; !slices.Equal(reserved, want) {
		return fmt.Errorf("reserved are %v, want %v", reserved, want)
	}
	return errors.Join(
		network(m, map[string]string{"ipv4": "10.0.0.10", "ipv6": "2001:db8::10", "interface_id": "primary"}),
		says(m, "Address=10.0.0.10/32\n"), says(m, "Address=2001:db8::10/128\n"))
}

// entrances returns the sources and ports of a security group's ingress rules, by the names of the
// rules.
func entrances(m made, group string) []string {
	var out []string
	for _, rule := range m.all("aws_vpc_security_group_ingress_rule") {
		if rule.text("security_group_id") != group {
			continue
		}
		from := rule.text("cidr_ipv4") + rule.text("cidr_ipv6") + rule.text("referenced_security_group_id")
		out = append(out, fmt.Sprintf("%s %s %s-%s", from, rule.text("ip_protocol"), rule.text("from_port"), rule.text("to_port")))
	}
	slices.Sort(out)
	return out
}

// groupID returns the id of a security group of the shard by its name in the module.
func groupID(m made, name string) string {
	for _, one := range m.all("aws_security_group") {
		if one.Name == name {
			return one.text("id")
		}
	}
	return ""
}

// closed: servers have their own security group, which admits servers for the election, agents for
// registration and streams, and no others.
func closed(m made) error {
	server, agent := groupID(m, "server"), groupID(m, "agent")
	eni, err1 := m.one("aws_network_interface")
	template, err2 := m.one("aws_launch_template")
	if err := errors.Join(err1, err2, eni.want(map[string]string{"security_groups.0": server}),
		template.want(map[string]string{"network_interfaces.0.security_groups.0": server})); err != nil {
		return err
	}
	want := []string{server + " tcp 8991-8991", agent + " tcp 8992-8992", agent + " tcp 8994-8994"}
	slices.Sort(want)
	if got := entrances(m, server); !slices.Equal(got, want) {
		return fmt.Errorf("servers let in %v, want %v", got, want)
	}
	if got := entrances(m, agent); len(got) > 0 {
		return fmt.Errorf("instances let in %v", got)
	}
	return nil
}

func operatorsReach(m made) error {
	server, agent := groupID(m, "server"), groupID(m, "agent")
	want := []string{server + " tcp 8991-8991", agent + " tcp 8992-8992", agent + " tcp 8994-8994"}
	for _, from := range []string{"10.0.0.0/8", "2001:db8::/32", "sg-0a1b2c3d"} {
		want = append(want, from+" tcp 8992-8992", from+" tcp 8993-8993")
	}
	slices.Sort(want)
	if got := entrances(m, server); !slices.Equal(got, want) {
		return fmt.Errorf("servers let in %v, want %v", got, want)
	}
	return nil
}

func balanced(m made) error {
	balancer, err1 := m.one("aws_lb")
	targets, err2 := m.one("aws_lb_target_group")
	listener, err3 := m.one("aws_lb_listener")
	own := groupID(m, "balancer")
	if err := errors.Join(err1, err2, err3,
		balancer.want(map[string]string{
			"load_balancer_type": "network", "internal": "true", "security_groups.0": own, "subnets.0": "subnet-0a1b2c3d",
		}),
		targets.want(map[string]string{"target_type": "instance", "port": "8443", "protocol": "TCP", "vpc_id": "vpc-0a1b2c3d"}),
		targets.want(map[string]string{"preserve_client_ip": "true"}),
		listener.want(map[string]string{
			"load_balancer_arn": balancer.text("arn"), "port": "443", "default_action.0.target_group_arn": targets.text("arn"),
		}), owned(targets, "tags", "true")); err != nil {
		return err
	}
	if got, want := entrances(m, own), []string{"0.0.0.0/0 tcp 443-443", "::/0 tcp 443-443"}; !slices.Equal(got, want) {
		return fmt.Errorf("it lets in %v, want %v", got, want)
	}
	if got, want := entrances(m, groupID(m, "agent")), []string{own + " tcp 8443-8443"}; !slices.Equal(got, want) {
		return fmt.Errorf("instances let in %v, want %v", got, want)
	}
	return nil
}
