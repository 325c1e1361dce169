# The Auto Scaling group of the servers. nstance-asg reports when a server is ready, and when it is lost.

locals {
  hook    = "${local.name}-ready"
  servers = 1 + var.standbys

  # The smallest machines start without CPU credits, and installing Docker takes longer than unpacking an archive.
  boot_timeout_seconds = coalesce(var.server_boot_timeout_seconds, local.containers ? 1200 : 600)
}

resource "aws_autoscaling_group" "server" {
  name                = local.name
  desired_capacity    = local.servers
  min_size            = local.servers
  max_size            = local.servers + 1
  vpc_zone_identifier = [var.subnet.id]

  # Longer than a server's boot may take, so that the group reports the failure.
  wait_for_capacity_timeout = "${ceil(local.boot_timeout_seconds / 60) + 5}m"

  launch_template {
    id = aws_launch_template.server.id
    # By number, so that a plan shows that servers will be replaced.
    version = aws_launch_template.server.latest_version
  }

  # Only EC2's checks of the machine: a new machine does not fix an unreachable store or a bad config.
  health_check_type         = "EC2"
  health_check_grace_period = 60

  # A server is in service once it is able to lead.
  initial_lifecycle_hook {
    name                 = local.hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
    default_result       = "ABANDON"
    heartbeat_timeout    = local.boot_timeout_seconds
  }

  # The next server is ready before the previous one is terminated.
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

  # Tags of the group only, which allow nstance-asg to report to it. The launch template tags the machines.
  dynamic "tag" {
    for_each = local.moved
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  # Without its config, its security group rules or its address a server would not become ready.
  depends_on = [
    aws_ec2_subnet_cidr_reservation.leader,
    aws_s3_object.config,
    aws_vpc_security_group_egress_rule.out,
    aws_vpc_security_group_ingress_rule.server_from_cidrs,
    aws_vpc_security_group_ingress_rule.server_from_groups,
  ]
}
