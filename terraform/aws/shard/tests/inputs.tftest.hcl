# What the module answers to inputs that are not valid.

mock_provider "aws" {}

variables {
  cluster_id          = "example"
  bucket              = "nstance-example-123456789012"
  encryption_key_arn  = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-AbCdEf"
  server_profile_name = "nstance-example-server"
  agent_profile_name  = "nstance-example-agent"
  shard               = "eu-central-1a"
  subnet              = { id = "subnet-0123456789abcdef0", vpc_id = "vpc-0123456789abcdef0", zone = "eu-central-1a", cidr = "10.0.0.0/24" }
  server_package = {
    url = "https://example.com/nstance.tar.gz", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }
  standbys            = 1
  leader_ipv4_address = "10.0.0.10"
  subnet_pools        = { workers = ["subnet-0fedcba9876543210"] }
}

run "an_address_of_another_subnet" {
  command = plan
  variables { leader_ipv4_address = "10.0.1.10" }
  expect_failures = [var.leader_ipv4_address]
}

run "standbys_without_an_address" {
  command = plan
  variables { leader_ipv4_address = null }
  expect_failures = [var.leader_ipv4_address]
}

run "ipv6_in_a_subnet_without_it" {
  command = plan
  variables {
    enable_leader_ipv6  = true
    leader_ipv6_address = "2001:db8::10"
  }
  expect_failures = [var.enable_leader_ipv6]
}

run "no_family_at_all" {
  command = plan
  variables {
    enable_leader_ipv4  = false
    leader_ipv4_address = null
  }
  expect_failures = [var.enable_leader_ipv4]
}

run "an_address_of_a_family_that_is_off" {
  command = plan
  variables {
    enable_leader_ipv4  = false
    enable_leader_ipv6  = true
    leader_ipv6_address = "2001:db8::10"
    subnet = {
      id   = "subnet-0123456789abcdef0", vpc_id = "vpc-0123456789abcdef0", zone = "eu-central-1a",
      cidr = "10.0.0.0/24", ipv6_cidr = "2001:db8::/64"
    }
  }
  expect_failures = [var.leader_ipv4_address]
}

run "a_package_over_http" {
  command = plan
  variables {
    server_package = {
      url = "http://example.com/nstance.tar.gz", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    }
  }
  expect_failures = [var.server_package]
}

run "a_package_that_would_end_the_quotes" {
  command = plan
  variables {
    server_package = {
      url = "https://example.com/'; halt; '", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    }
  }
  expect_failures = [var.server_package]
}

run "a_package_without_its_sum" {
  command = plan
  variables { server_package = { url = "https://example.com/nstance.tar.gz", sha256 = "" } }
  expect_failures = [var.server_package]
}

run "an_image_by_tag" {
  command = plan
  variables {
    server_package = null
    server_image   = "ghcr.io/example/nstance-server:v1"
    asg_image      = "ghcr.io/example/nstance-asg@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }
  expect_failures = [var.server_image]
}

run "an_image_of_nstance_asg_by_tag" {
  command = plan
  variables {
    server_package = null
    server_image   = "ghcr.io/example/nstance-server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    asg_image      = "ghcr.io/example/nstance-asg:v1"
  }
  expect_failures = [var.asg_image]
}

run "an_image_beside_a_package" {
  command = plan
  variables {
    server_image = "ghcr.io/example/nstance-server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    asg_image    = "ghcr.io/example/nstance-asg@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }
  expect_failures = [var.server_package]
}

run "an_image_of_servers_alone" {
  command = plan
  variables {
    server_package = null
    server_image   = "ghcr.io/example/nstance-server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }
  expect_failures = [var.asg_image]
}

run "a_template_that_nothing_installs_the_agent_for" {
  command = plan
  variables { templates = { web = { kind = "web" } } }
  expect_failures = [var.templates]
}

run "args_that_are_no_object" {
  command = plan
  variables { templates = { web = { kind = "web", args_json = "[]", userdata = { content = "#!/bin/sh" } } } }
  expect_failures = [var.templates]
}

run "userdata_in_an_encoding_that_no_machine_undoes" {
  command = plan
  variables { templates = { web = { kind = "web", userdata = { content = "IyEvYmluL3No", encoding = "base64" } } } }
  expect_failures = [var.templates]
}

run "a_group_of_no_template" {
  command = plan
  variables { groups = { default = { web = { template = "web" } } } }
  expect_failures = [var.groups]
}

run "a_load_balancer_that_is_made_and_exists" {
  command = plan
  variables {
    load_balancers = {
      www = { port = 80, subnet_ids = ["subnet-0fedcba9876543210"], target_group_arns = [] }
    }
  }
  expect_failures = [var.load_balancers]
}

run "an_image_of_one_arch" {
  command = plan
  variables {
    server_arch          = "x86_64"
    server_instance_type = "t3.nano"
  }
  expect_failures = [var.server_arch]
}

run "a_group_of_no_instance_type" {
  command = plan
  variables {
    templates = { web = { kind = "web", subnet_pool = "workers", userdata = { content = "#!/bin/sh" } } }
    groups    = { default = { web = { template = "web" } } }
  }
  expect_failures = [var.groups]
}

run "a_group_in_no_pool" {
  command = plan
  variables {
    templates = { web = { kind = "web", instance_type = "t4g.small", userdata = { content = "#!/bin/sh" } } }
    groups    = { default = { web = { template = "web" } } }
  }
  expect_failures = [var.groups]
}

run "a_duration_without_a_unit" {
  command = plan
  variables { settings = { health = { report_interval = "30" } } }
  expect_failures = [var.settings]
}

run "a_duration_in_days" {
  command = plan
  variables { settings = { expiry = { eligible_age = "1d12h", ondemand_age = "" }, leader_election = { fence_window = "1.5s", give_up = "500ms" } } }
}

run "the_tenant_that_is_always_there" {
  command = plan
  variables { tenants = ["default"] }
  expect_failures = [var.tenants]
}

run "a_certificate_of_no_kind" {
  command = plan
  variables { certificates = { web = { kind = "both", cn = "web" } } }
  expect_failures = [var.certificates]
}

run "a_profile_by_its_arn" {
  command = plan
  variables { server_profile_name = "arn:aws:iam::123456789012:instance-profile/server" }
  expect_failures = [var.server_profile_name]
}
