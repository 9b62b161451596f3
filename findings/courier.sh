# Starts Courier's IMAP and POP3 servers for anna, whose password is "secret".
useradd --create-home anna
echo anna:secret | chpasswd
runuser -u anna -- maildirmake /home/anna/Maildir
mkdir -p /run/courier/authdaemon
for service in authdaemon imap pop; do
    [ ! -e /etc/init.d/courier-$service ] || /etc/init.d/courier-$service start >/dev/null
done
for _ in $(seq 100); do
    authtest anna secret >/dev/null 2>&1 && break
    sleep 0.1
done
await 143
