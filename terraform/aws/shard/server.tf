# The servers' machines. They keep nothing: what a shard must not forget is in the bucket.

locals {
  containers = var.server.image != null
  user_data = templatefile("${path.module}/templates/server.sh.tftpl", {
    shard          = var.shard
    bucket         = var.cluster.bucket
    region         = local.region
    package        = var.server.package
    image          = var.server.image
    asg_image      = var.server.asg_image
    group          = local.name
    hook           = local.hook
    ipv4           = local.leader_ipv4
    ipv6           = local.leader_ipv6
    with_interface = local.with_interface
    interface_id   = local.with_interface ? aws_network_interface.leader[0].id : ""
    interface_arn  = local.with_interface ? aws_network_interface.leader[0].arn : ""
    interface_mac  = local.with_interface ? aws_network_interface.leader[0].mac_address : ""
    subnet_ipv4    = var.subnet.cidr
    subnet_ipv6    = var.subnet.ipv6_cidr
    # The VPC's router has the first address of each subnet.
    router = local.leader_ipv4 == null ? "" : cidrhost(var.subnet.cidr, 1)
  })
}

resource "aws_launch_template" "server" {
  name                   = "${local.name}-server"
  description            = "Nstance: a server of ${var.cluster.id}/${var.shard}"
  update_default_version = true

  image_id      = var.vm.ami_id != null ? var.vm.ami_id : data.aws_ssm_parameter.ami[0].insecure_value
  instance_type = var.vm.instance_type
  user_data     = base64encode(local.user_data)

  # A machine that was shut down is of no more use.
  instance_initiated_shutdown_behavior = "terminate"

  iam_instance_profile {
    name = var.account.server_profile_name
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = local.containers ? 2 : 1
  }

  # Only what is called t… has credits. Standard ones cost nothing beyond the machine.
  dynamic "credit_specification" {
    for_each = startswith(var.vm.instance_type, "t") ? ["standard"] : []
    content {
      cpu_credits = credit_specification.value
    }
  }

  block_device_mappings {
    device_name = var.vm.root_device

    ebs {
      volume_type           = "gp3"
      volume_size           = var.vm.volume_gb
      encrypted             = true
      kms_key_id            = var.vm.kms_key_arn
      delete_on_termination = true
    }
  }

  # The machine's own interface. The leader's is not named here: see leader.tf.
  network_interfaces {
    device_index                = 0
    associate_public_ip_address = var.vm.public_ip
    ipv6_address_count          = var.leader.ipv6 ? 1 : null
    security_groups             = [aws_security_group.server.id]
    delete_on_termination       = true
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { "nstance:role" = "server" })
  }
  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }
  # The leader's second address is given to this interface and taken from it.
  tag_specifications {
    resource_type = "network-interface"
    tags          = local.moved
  }

  tags = local.tags

  lifecycle {
    precondition {
      condition     = length(local.user_data) <= 16384
      error_message = "server: the user data has more than the 16384 characters that EC2 takes"
    }
  }
}
