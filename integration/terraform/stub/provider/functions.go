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

// seedOf is what ids are drawn from: a resource's type and what is known of it.
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

// functions are those that the catalog's expressions call: hex, digits and letters draw as
// many of them, arn names something in the account, suffix is how AWS's names end in the
// region and reverse_suffix how that begins, endpoint_services are the names of services that
// there are, md5 only looks like it, and the rest are Terraform's own.
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

// arn is a name of the form that AWS documents. S3 and IAM have no region in theirs, and S3
// no account.
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

// uuid draws a UUID.
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

// drawn draws from an alphabet, as many as asked for.
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

// digest stands for the hash of an object: of the length of an MD5.
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
