package workload

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// inline returns the config of a kubeconfig's current context, from inline data only. Fields
// that would make the operator read its own files, run a program, use a proxy or impersonate
// another user are rejected by name: otherwise the right to write the Secret would give access
// to the operator's token, or more.
func inline(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, fmt.Errorf("current-context %q: want the name of one of its contexts", config.CurrentContext)
	}
	var refused []error
	if cluster, ok := config.Clusters[current.Cluster]; ok {
		refused = append(refused, foreignOfCluster(current.Cluster, cluster)...)
	}
	if user, ok := config.AuthInfos[current.AuthInfo]; ok {
		refused = append(refused, foreignOfUser(current.AuthInfo, user)...)
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	return clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
}

func foreignOfCluster(name string, c *api.Cluster) []error {
	return refuse("cluster", name, []field{
		{"certificate-authority", c.CertificateAuthority, "certificate-authority-data"},
		{"proxy-url", c.ProxyURL, ""},
	})
}

func foreignOfUser(name string, u *api.AuthInfo) []error {
	fields := []field{
		{"client-certificate", u.ClientCertificate, "client-certificate-data"},
		{"client-key", u.ClientKey, "client-key-data"},
		{"tokenFile", u.TokenFile, "token"},
		{"as", u.Impersonate, ""},
		{"as-uid", u.ImpersonateUID, ""},
	}
	if len(u.ImpersonateGroups) > 0 {
		fields = append(fields, field{"as-groups", fmt.Sprint(u.ImpersonateGroups), ""})
	}
	if len(u.ImpersonateUserExtra) > 0 {
		fields = append(fields, field{"as-user-extra", fmt.Sprint(u.ImpersonateUserExtra), ""})
	}
	if u.AuthProvider != nil {
		fields = append(fields, field{"auth-provider", u.AuthProvider.Name, "token"})
	}
	if u.Exec != nil {
		fields = append(fields, field{"exec", u.Exec.Command, "token"})
	}
	return refuse("user", name, fields)
}

// field is a field of a kubeconfig, and the field to use instead, if any.
type field struct{ name, value, instead string }

// refuse returns an error for each field that is set.
func refuse(kind, name string, fields []field) (refused []error) {
	for _, f := range fields {
		switch {
		case f.value == "":
		case f.instead == "":
			refused = append(refused, fmt.Errorf("%s of the %s %q is %.200q: want none", f.name, kind, name, f.value))
		default:
			refused = append(refused, fmt.Errorf("%s of the %s %q is %.200q: want none, and %s instead", f.name, kind, name, f.value, f.instead))
		}
	}
	return refused
}
