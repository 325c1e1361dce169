# What the module answers to inputs that are not valid.

mock_provider "aws" {}

variables {
  name       = "example"
  cluster_id = "example"
  vpc_cidr   = "10.0.0.0/16"
  subnets    = { servers = { role = "public", zone = "eu-central-1a", cidr = "10.0.0.0/24" } }
}

run "a_vpc_that_is_new_and_exists" {
  command = plan
  variables { vpc_id = "vpc-0123456789abcdef0" }
  expect_failures = [var.vpc_cidr]
}

run "a_role_that_there_is_not" {
  command = plan
  variables { subnets = { servers = { role = "secret", zone = "eu-central-1a", cidr = "10.0.0.0/24" } } }
  expect_failures = [var.subnets]
}

run "a_subnet_without_a_zone" {
  command = plan
  variables { subnets = { servers = { role = "public", cidr = "10.0.0.0/24" } } }
  expect_failures = [var.subnets]
}

run "ipv6_of_a_vpc_without_it" {
  command = plan
  variables { subnets = { servers = { role = "public", zone = "eu-central-1a", cidr = "10.0.0.0/24", ipv6_number = 1 } } }
  expect_failures = [var.subnets]
}

run "private_without_a_way_out" {
  command = plan
  variables { subnets = { servers = { role = "private", zone = "eu-central-1a", cidr = "10.0.0.0/24" } } }
  expect_failures = [var.nat]
}

run "a_nat_gateway_with_no_place_in_the_zone" {
  command = plan
  variables {
    nat = "per-zone"
    subnets = {
      public  = { role = "public", zone = "eu-central-1a", cidr = "10.0.0.0/24" }
      servers = { role = "private", zone = "eu-central-1b", cidr = "10.0.1.0/24" }
    }
  }
  expect_failures = [var.nat]
}

run "a_public_subnet_in_a_vpc_without_a_gateway" {
  command = plan
  variables {
    vpc_cidr = null
    vpc_id   = "vpc-0123456789abcdef0"
  }
  expect_failures = [var.subnets]
}

run "endpoints_without_isolated_subnets" {
  command = plan
  variables { interface_endpoints = ["ec2"] }
  expect_failures = [aws_vpc_endpoint.interface]
}
