package provider

import (
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// partition returns the partition of a region.
func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	case strings.HasPrefix(region, "eusc-"):
		return "aws-eusc"
	default:
		return "aws"
	}
}

// suffix returns the domain of AWS's services.
func suffix(region string) string {
	switch partition(region) {
	case "aws-cn":
		return "amazonaws.com.cn"
	case "aws-eusc":
		return "amazonaws.eu"
	default:
		return "amazonaws.com"
	}
}

// reverseSuffix returns the same in reverse order.
func reverseSuffix(region string) string {
	parts := strings.Split(suffix(region), ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// ownDomain returns the services of a type of endpoint whose names begin with the partition's own
// domain, among those that the modules may name. The others, and all of other partitions, begin
// with com.amazonaws.
func ownDomain(region, kind string) []string {
	switch partition(region) + " " + kind {
	case "aws-cn Interface":
		return []string{"autoscaling", "ec2", "ecr.api", "ecr.dkr", "s3"}
	case "aws-eusc Interface":
		return []string{"ecr.api", "ecr.dkr"}
	default:
		return nil
	}
}

// endpointServices returns the full names of the services of a type in a region.
func endpointServices(region string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "type", Type: cty.String}},
		Type:   function.StaticReturnType(cty.List(cty.String)),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			kind := args[0].AsString()
			services := []string{"autoscaling", "ec2", "ecr.api", "ecr.dkr", "elasticloadbalancing", "s3", "secretsmanager", "ssm", "ssmmessages"}
			if kind == "Gateway" {
				services = []string{"dynamodb", "s3"}
			}
			var names []cty.Value
			for _, service := range services {
				prefix := "com.amazonaws"
				if slices.Contains(ownDomain(region, kind), service) {
					prefix = reverseSuffix(region)
				}
				names = append(names, cty.StringVal(prefix+"."+region+"."+service))
			}
			return cty.ListVal(names), nil
		},
	})
}
