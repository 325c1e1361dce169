package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/secrets"
)

// This file is Parameter Store, of Systems Manager:
// https://docs.aws.amazon.com/systems-manager/latest/APIReference/

// A parameter is 4 KiB of text: the value in base64, a space, and the token of the write
// that put it there. What a person stores may lack the token.
const (
	maxText      = 4 << 10
	tokenLength  = 32
	maxParameter = (maxText - 1 - tokenLength) / 4 * 3 // bytes of a value
)

// store calls Parameter Store, which knows no tokens: a write whose reply was lost is
// known by the one in the text.
type store struct{ call caller }

var _ backend = store{}

// read returns a parameter's text. It takes a name or an ARN.
func (s store) read(ctx context.Context, name string) (string, error) {
	in := struct {
		Name           string
		WithDecryption bool
	}{name, true}
	var out struct{ Parameter struct{ Value string } }
	err := s.call.call(ctx, "GetParameter", in, &out, false)
	if awscall.Coded(err, "ParameterNotFound", "ParameterVersionNotFound") {
		return "", errAbsent
	}
	return out.Parameter.Value, complete("GetParameter", out.Parameter.Value != "", err)
}

func (s store) value(ctx context.Context, name string) ([]byte, error) {
	text, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

func encode(value []byte, token string) string {
	return base64.StdEncoding.EncodeToString(value) + " " + token
}

// decode does not show the text, which may be the secret itself.
func decode(text string) ([]byte, error) {
	encoded, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	value, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameter's text is no base64: store the value in base64", secrets.ErrSealed)
	}
	return value, nil
}

func (s store) put(ctx context.Context, name, text string, overwrite bool) error {
	in := struct {
		Name, Value, Type string
		Overwrite         bool
	}{name, text, "SecureString", overwrite}
	var out struct{ Version int64 }
	err := s.call.call(ctx, "PutParameter", in, &out, true)
	return complete("PutParameter", out.Version > 0, err)
}

// create looks, after an attempt whose reply was lost, whose the parameter is that is
// there now. Reads lag: one that shows none yet leaves it in doubt.
func (s store) create(ctx context.Context, name, token string, value []byte, doubt bool) (bool, error) {
	text := encode(value, token)
	err := s.put(ctx, name, text, false)
	switch {
	case err == nil:
		return true, nil
	case !awscall.Coded(err, "ParameterAlreadyExists"):
		return false, err
	case !doubt:
		return false, nil
	}
	there, err := s.read(ctx, name)
	return err == nil && there == text, err
}

// replace writes over whatever is there. An attempt that is repeated may write over what
// somebody else wrote in between: this service has nothing against that.
func (s store) replace(ctx context.Context, name, token string, value []byte) error {
	return s.put(ctx, name, encode(value, token), true)
}
