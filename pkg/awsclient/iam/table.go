package iam

import "slices"

// Policies. A server's role has SectionServer, and of the others those that its config uses.
const (
	SectionServer         = "server"
	SectionAgent          = "agent"           // the role of the instances that a shard makes
	SectionWatchdog       = "asg"             // nstance-asg, on a server's machine
	SectionKey            = "key"             // the encryption key is at AWS
	SectionSecretsManager = "secrets-manager" // the cluster's secrets are there
	SectionParameterStore = "parameter-store" // the cluster's secrets are there
	SectionKMS            = "kms"             // a customer managed key encrypts the bucket, secrets or volumes
	SectionSnapshots      = "snapshots"       // templates' args create volumes from snapshots
)

// tagged requires that the resource has this cluster's tags.
func tagged() Condition {
	return Condition{"StringEquals": {"aws:ResourceTag/nstance:managed": "true", "aws:ResourceTag/nstance:cluster-id": "${cluster_id}"}}
}

// ofServer matches server machines. They don't have nstance:managed, as machines with it but
// without a record are deleted.
func ofServer() Condition {
	return Condition{"StringEquals": {"aws:ResourceTag/nstance:role": "server", "aws:ResourceTag/nstance:cluster-id": "${cluster_id}"}}
}

// ofCluster requires a resource of this cluster, but without nstance:managed, which would let
// its servers modify it.
func ofCluster() Condition {
	return Condition{"StringEquals": {"aws:ResourceTag/nstance:cluster-id": "${cluster_id}"}}
}

// ofNoCluster matches untagged resources, as those a launch creates. Existing resources of a
// cluster, such as a leader's interface, must not be attached to an instance at launch.
func ofNoCluster() Condition {
	return Condition{"Null": {"aws:ResourceTag/nstance:cluster-id": "true"}}
}

func taggedAtLaunch() Condition {
	return Condition{"StringEquals": {"aws:RequestTag/nstance:managed": "true", "aws:RequestTag/nstance:cluster-id": "${cluster_id}"}}
}

// of returns the ARN of a service's resources in this account and region.
func of(service, thing string) string {
	return "arn:${partition}:" + service + ":${region}:${account}:" + thing
}

// secretsOf returns the ARN of a service's secrets, which may be in another region.
func secretsOf(service, kind string) string {
	return "arn:${partition}:" + service + ":${secret_region}:${account}:" + kind + "${secret_prefix}*"
}

// Statements returns the table.
func Statements() []Statement {
	return slices.Concat(machines(), network(), targets(), storage(), watchdog(), keys())
}

func machines() []Statement {
	return slices.Concat([]Statement{
		{
			Section: SectionServer, ID: "Look", For: "what there is; none of these can be limited to some things",
			Actions: []string{
				"ec2:DescribeImages", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces",
				"ec2:DescribeSubnets", "elasticloadbalancing:DescribeTargetHealth",
			},
			Resources: []string{"*"},
		},
	}, launches(), []Statement{
		{
			Section: SectionServer, ID: "End", For: "deletes",
			Actions: []string{"ec2:TerminateInstances"}, Resources: []string{of("ec2", "instance/*")}, Condition: tagged(),
		},
	})
}

func launches() []Statement {
	return []Statement{
		{
			Section: SectionServer, ID: "Launch", For: "creates; only of instances that carry the cluster's tags",
			Actions: []string{"ec2:RunInstances"}, Resources: []string{of("ec2", "instance/*")}, Condition: taggedAtLaunch(),
		},
		{
			Section: SectionServer, ID: "LaunchWith", For: "what a launch uses that is the cluster's, and the cluster's alone",
			Actions: []string{"ec2:RunInstances"},
			Resources: []string{
				"arn:${partition}:ec2:${region}:*:capacity-reservation/*", // may be shared from another account
				of("ec2", "launch-template/*"), of("ec2", "placement-group/*"), of("ec2", "security-group/*"), of("ec2", "subnet/*"),
			},
			Condition: ofCluster(),
		},
		{
			Section: SectionServer, ID: "LaunchFrom", For: "what a launch uses that is shared: images by their properties, keys to log in, licenses",
			Actions: []string{"ec2:RunInstances"},
			Resources: []string{
				"arn:${partition}:ec2:${region}::image/*", // image ARNs have no account
				of("ec2", "key-pair/*"), of("license-manager", "license-configuration:*"), of("resource-groups", "group/*"),
			},
		},
		{
			Section: SectionServer, ID: "LaunchBeside", For: "what a launch makes beside the instance",
			Actions:   []string{"ec2:RunInstances"},
			Resources: []string{of("ec2", "network-interface/*"), of("ec2", "spot-instances-request/*"), of("ec2", "volume/*")},
			Condition: ofNoCluster(),
		},
		{
			Section: SectionSnapshots, ID: "LaunchFromSnapshots", For: "volumes from snapshots, where args name any",
			Actions:   []string{"ec2:RunInstances"},
			Resources: []string{"arn:${partition}:ec2:${region}::snapshot/*"}, // snapshot ARNs have no account
			Condition: ofCluster(),
		},
		{
			Section: SectionServer, ID: "TagAtLaunch", For: "the tags of a launch, which are there from the beginning", Silent: true,
			Actions: []string{"ec2:CreateTags"}, Resources: []string{of("ec2", "*/*")},
			Condition: Condition{"StringEquals": {"ec2:CreateAction": "RunInstances"}},
		},
		{
			Section: SectionServer, ID: "PassRole", For: "the instances' own role, where args have an instance profile", Silent: true,
			Actions: []string{"iam:PassRole"}, Resources: []string{"${agent_role_arn}"},
			Condition: Condition{"StringLike": {"iam:PassedToService": "ec2.amazonaws.com*"}}, // ends in .cn in China
		},
		{
			Section: SectionServer, ID: "FirstSpot", For: "the first spot instance of an account, for which EC2 makes itself a role", Silent: true,
			Actions:   []string{"iam:CreateServiceLinkedRole"},
			Resources: []string{"arn:${partition}:iam::${account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"},
			Condition: Condition{"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
		},
	}
}

func network() []Statement {
	return []Statement{
		{
			Section: SectionServer, ID: "LeaderInterface", For: "the interface that follows the leader",
			Actions:   []string{"ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface"},
			Resources: []string{of("ec2", "network-interface/*")}, Condition: tagged(),
		},
		{
			Section: SectionServer, ID: "LeaderMachine", For: "the servers' machines, which that interface is attached to",
			Actions:   []string{"ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface"},
			Resources: []string{of("ec2", "instance/*")}, Condition: ofServer(),
		},
		{
			Section: SectionServer, ID: "LeaderAddress", For: "the address that follows the leader, on the servers' own interfaces",
			Actions: []string{
				"ec2:AssignIpv6Addresses", "ec2:AssignPrivateIpAddresses", "ec2:UnassignIpv6Addresses",
			},
			Resources: []string{of("ec2", "network-interface/*")}, Condition: tagged(),
		},
	}
}

func targets() []Statement {
	return []Statement{{
		Section: SectionServer, ID: "Targets", For: "load balancers: target groups that carry the cluster's tags",
		Actions:   []string{"elasticloadbalancing:DeregisterTargets", "elasticloadbalancing:RegisterTargets"},
		Resources: []string{of("elasticloadbalancing", "targetgroup/*/*")}, Condition: tagged(),
	}}
}

// storage returns the S3 statements; minio-go makes the calls.
func storage() []Statement {
	const bucket = "arn:${partition}:s3:::${bucket}"
	return []Statement{
		{
			Section: SectionServer, ID: "Bucket",
			For:     "listings; and without it an object that is not there answers 403; rules that would delete objects",
			Actions: []string{"s3:GetLifecycleConfiguration", "s3:ListBucket"}, Resources: []string{bucket},
		},
		{
			Section: SectionServer, ID: "Objects", For: "all that is durable",
			Actions: []string{"s3:DeleteObject", "s3:GetObject", "s3:PutObject"}, Resources: []string{bucket + "/*"},
		},
	}
}

func watchdog() []Statement {
	return []Statement{{
		Section: SectionWatchdog, ID: "Watchdog", For: "the launch hook of a server's group, and the machine's health",
		Actions:   []string{"autoscaling:CompleteLifecycleAction", "autoscaling:SetInstanceHealth"},
		Resources: []string{of("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")}, Condition: tagged(),
	}}
}

func keys() []Statement {
	return []Statement{
		{
			Section: SectionKey, ID: "Key", For: "the encryption key of the cluster's secrets, in either service",
			Actions: []string{"secretsmanager:GetSecretValue", "ssm:GetParameter"}, Resources: []string{"${key_arn}"},
		},
		{
			Section: SectionSecretsManager, ID: "Secrets", For: "cluster.secrets.provider aws-secrets-manager",
			Actions:   []string{"secretsmanager:CreateSecret", "secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"},
			Resources: []string{secretsOf("secretsmanager", "secret:")},
		},
		{
			Section: SectionParameterStore, ID: "Parameters", For: "cluster.secrets.provider aws-parameter-store",
			Actions: []string{"ssm:GetParameter", "ssm:PutParameter"}, Resources: []string{secretsOf("ssm", "parameter/")},
		},
		{
			Section: SectionKMS, ID: "UseKey", For: "what a key of one's own encrypts in S3, Secrets Manager and Parameter Store", Silent: true,
			Actions: []string{"kms:Decrypt", "kms:GenerateDataKey"}, Resources: []string{"${kms_key_arn}"},
			Condition: Condition{"StringLike": {"kms:ViaService": "*.amazonaws.*"}}, // in the key's region, which its ARN names
		},
		{
			Section: SectionKMS, ID: "UseKeyForVolumes", For: "volumes of instances that a key of one's own encrypts", Silent: true,
			Actions: []string{
				"kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
			},
			Resources: []string{"${kms_key_arn}"},
			Condition: Condition{"StringLike": {"kms:ViaService": "ec2.${region}.amazonaws.*"}},
		},
		{
			Section: SectionKMS, ID: "GrantKey", For: "the same volumes, when they are attached", Silent: true,
			Actions: []string{"kms:CreateGrant"}, Resources: []string{"${kms_key_arn}"},
			Condition: Condition{"Bool": {"kms:GrantIsForAWSResource": "true"}, "StringLike": {"kms:ViaService": "ec2.${region}.amazonaws.*"}},
		},
	}
}
