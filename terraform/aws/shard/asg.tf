# What keeps the servers there. Whether one is ready, and whether one is lost, nstance-asg says.

locals {
  hook    = "${local.name}-ready"
  servers = 1 + var.standbys

  # The smallest machines begin without CPU credits, and to install Docker takes them longer than to unpack an archive.
  boot_timeout_seconds = coalesce(var.vm.boot_timeout_seconds, local.containers ? 1200 : 600)
}

resource "aws_autoscaling_group" "server" {
  name                = local.name
  desired_capacity    = local.servers
  min_size            = local.servers
  max_size            = local.servers + 1
  vpc_zone_identifier = [var.subnet.id]

  # Longer than a server may take, so that it is the group that says what is wrong.
  wait_for_capacity_timeout = "${ceil(local.boot_timeout_seconds / 60) + 5}m"

  launch_template {
    id = aws_launch_template.server.id
    # The number, so that a plan shows that servers will be replaced.
    version = aws_launch_template.server.latest_version
  }

  # EC2's own checks, of the machine. A store that is away, or a bad config, is nothing that a new
  # machine mends.
  health_check_type         = "EC2"
  health_check_grace_period = 60

  # A server counts as there once it is fit to lead.
  initial_lifecycle_hook {
    name                 = local.hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
    default_result       = "ABANDON"
    heartbeat_timeout    = local.boot_timeout_seconds
  }

  # The next server is ready before the one before goes.
  instance_maintenance_policy {
    min_healthy_percentage = 100
    max_healthy_percentage = 200
  }

  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 200
      skip_matching          = true
    }
  }

  termination_policies = ["OldestLaunchTemplate", "OldestInstance"]

  # Of the group alone, which nstance-asg may so tell how a server does. Machines have theirs from
  # the launch template.
  dynamic "tag" {
    for_each = local.moved
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  # A server without its config, its rules or its address would not become ready.
  depends_on = [
    aws_ec2_subnet_cidr_reservation.leader,
    aws_s3_object.config,
    aws_vpc_security_group_egress_rule.out,
    aws_vpc_security_group_ingress_rule.server_from_cidrs,
    aws_vpc_security_group_ingress_rule.server_from_groups,
  ]
}
