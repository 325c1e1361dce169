package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// seedOf returns the seed of a resource's ids: its type and its known values.
func seedOf(name string, attrs map[string]cty.Value, revision int) (string, error) {
	known := map[string]cty.Value{}
	for key, value := range attrs {
		if value.IsWhollyKnown() {
			known[key] = value
		}
	}
	object := cty.ObjectVal(known)
	text, err := ctyjson.Marshal(object, object.Type())
	return fmt.Sprintf("%s\n%d\n%s", name, revision, text), err
}

// functions are those of the catalog's expressions: hex, digits and letters return that many random
// ones, arn an ARN in the account, suffix the domain of AWS's services in the region and
// reverse_suffix its reverse, endpoint_services the names of existing services, md5 only looks like
// one, and the rest are Terraform's own.
func functions(seed, region string) map[string]function.Function {
	return map[string]function.Function{
		"hex":     drawn(seed, "0123456789abcdef"),
		"digits":  drawn(seed, "123456789"),
		"letters": drawn(seed, "ABCDEFGHJKLMNPQRSTUVWXYZ234567"),
		"arn": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "service", Type: cty.String}, {Name: "resource", Type: cty.String}},
			Type:   function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				service := args[0].AsString()
				return cty.StringVal(arn(region, service, args[1].AsString())), nil
			},
		}),
		"uuid":              constant(uuid(seed)),
		"account":           constant(account),
		"partition":         constant(partition(region)),
		"suffix":            constant(suffix(region)),
		"reverse_suffix":    constant(reverseSuffix(region)),
		"endpoint_services": endpointServices(region),
		"md5":               digest(),
		"coalesce":          stdlib.CoalesceFunc,
		"concat":            stdlib.ConcatFunc,
		"contains":          stdlib.ContainsFunc,
		"flatten":           stdlib.FlattenFunc,
		"length":            stdlib.LengthFunc,
		"lower":             stdlib.LowerFunc,
		"regex":             stdlib.RegexFunc,
		"regex_replace":     stdlib.RegexReplaceFunc,
		"replace":           stdlib.ReplaceFunc,
	}
}

// arn returns an ARN in AWS's documented form. Those of S3 and IAM have no region, and S3's no
// account.
func arn(region, service, resource string) string {
	owner := account
	switch service {
	case "s3":
		region, owner = "", ""
	case "iam":
		region = ""
	default:
	}
	return strings.Join([]string{"arn", partition(region), service, region, owner, resource}, ":")
}

// uuid returns a random UUID.
func uuid(seed string) string {
	sum := sha256.Sum256([]byte(seed))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func constant(text string) function.Function {
	return function.New(&function.Spec{
		Type: function.StaticReturnType(cty.String),
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.StringVal(text), nil },
	})
}

// drawn returns as many random characters of an alphabet as requested.
func drawn(seed, alphabet string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "count", Type: cty.Number}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			count, _ := args[0].AsBigFloat().Int64()
			var out strings.Builder
			for i := int64(0); i < count; i++ {
				sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", seed, i))
				out.WriteByte(alphabet[int(sum[0])%len(alphabet)])
			}
			return cty.StringVal(out.String()), nil
		},
	})
}

// digest replaces the hash of an object: it has the length of an MD5.
func digest() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			sum := sha256.Sum256([]byte(args[0].AsString()))
			return cty.StringVal(hex.EncodeToString(sum[:16])), nil
		},
	})
}
