package plane

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

// kubeconfig writes a user's kubeconfig, with all keys inline.
func (p *pki) kubeconfig(file, server, user string) error {
	var texts [3][]byte
	for i, name := range []string{"ca.crt", user + ".crt", user + ".key"} {
		var err error
		if texts[i], err = os.ReadFile(p.path(name)); err != nil {
			return err
		}
	}
	const name = "dev-k8s"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: texts[0]}
	config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: texts[1], ClientKeyData: texts[2]}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return kinds.WriteFile(file, text)
}
